from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from leakscope.attacks.gias import gias
from leakscope.errors import BadInputError
from leakscope.matching.candidates import load_prior
from leakscope.priors import Trainer

Command = Callable[..., tuple[int, str, str]]

TINY = ("prior", "train", "--data", "digits", "--limit", "64", "--epochs", "3", "--latent", "4", "--width", "4")


def test_a_prior_is_trained_and_read_back(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "prior.safetensors"
    code, text, _ = command(*TINY, "--out", str(out), "--json")
    assert code == 0
    result = json.loads(text)
    prior = load_prior(out)
    assert prior.fingerprint == result["sha256"]
    assert prior.image_shape == (1, 8, 8)
    assert "64 images of digits" in prior.about
    assert gias(prior=out) == gias(prior=str(out)) == gias(prior=prior)
    assert [path.name for path in tmp_path.iterdir()] == ["prior.safetensors"], "no checkpoint is left"


def test_the_same_seed_gives_the_same_bytes(command: Command, tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert command(*TINY, "--seed", seed, "--out", str(tmp_path / name))[0] == 0
    first, again, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == again
    assert first != other


def test_a_killed_training_continues_to_the_same_bytes(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    command(*TINY, "--out", str(whole))
    taken = []
    advance = Trainer._advance

    def killed(self: Trainer) -> float:
        taken.append(self.step)
        if len(taken) == 2:
            raise KeyboardInterrupt
        return advance(self)

    monkeypatch.setattr(Trainer, "_advance", killed)
    assert command(*TINY, "--out", str(part))[0] == 130
    assert not part.exists()
    assert (tmp_path / "part.part").exists()
    code, _, err = command(*TINY, "--seed", "9", "--out", str(part))
    assert code == 2
    assert "unfinished training of another prior" in err
    assert command(*TINY, "--out", str(part))[0] == 0
    assert taken == [0, 1, 1, 2], "the first step was not taken again"
    assert part.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "part.part").exists()


def test_a_finished_prior_is_not_overwritten(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "prior.safetensors"
    out.write_bytes(b"mine")
    code, _, err = command(*TINY, "--out", str(out))
    assert code == 2
    assert "is there already" in err
    assert out.read_bytes() == b"mine"


def test_samples_are_saved_to_be_looked_at(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "prior.safetensors"
    command(*TINY, "--out", str(out))
    code, text, _ = command("prior", "show", str(out), "--out", str(tmp_path / "images"), "--count", "3")
    assert code == 0
    assert "64 images of digits" in text
    assert len(list((tmp_path / "images").glob("*.png"))) == 3


@pytest.mark.parametrize(
    ("option", "value", "needle"),
    [("--limit", "0", "--limit must be"), ("--epochs", "0", "epochs ≥ 1"), ("--data", "digit", "Did you mean")],
)
def test_wrong_options_are_named(command: Command, tmp_path: Path, option: str, value: str, needle: str) -> None:
    code, _, err = command(*TINY, option, value, "--out", str(tmp_path / "p"))
    assert code == 2
    assert needle in err
    assert not list(tmp_path.iterdir())


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A flat folder of six pictures of two sizes."""
    folder = tmp_path / "pics"
    folder.mkdir()
    for number in range(6):
        Image.new("RGB", (16 + number % 2, 16), (40 * number, 90, 10)).save(folder / f"{number}.png")
    return folder


def _train_on(folder: Path, *options: str) -> tuple[str, ...]:
    out = folder.parent / "prior.safetensors"
    return (*TINY, "--data", f"folder:{folder}", "--out", str(out), "--json", *options)


@pytest.mark.parametrize("options", [(), ("--split", "test"), ("--split", "all")])
def test_a_flat_folder_of_pictures_is_used_whole(command: Command, pictures: Path, options: tuple[str, ...]) -> None:
    code, text, err = command(*_train_on(pictures, "--size", "8", *options))
    assert code == 0, err
    assert json.loads(text)["about"].startswith("6 images of folder:")


def test_a_folder_with_a_training_part_gives_that_part(command: Command, pictures: Path) -> None:
    (pictures / "train").mkdir()
    (pictures / "test").mkdir()
    for number in range(6):
        (pictures / f"{number}.png").rename(pictures / ("train" if number < 4 else "test") / f"{number}.png")
    code, text, err = command(*_train_on(pictures, "--size", "8"))
    assert code == 0, err
    assert json.loads(text)["about"].startswith("4 images of folder:")


@pytest.mark.parametrize(
    ("options", "needle"),
    [
        (("--split", "train", "--size", "8"), "use --split test"),
        (("--split", "tain", "--size", "8"), "--split must be one of train, test, all, got 'tain'"),
        ((), "pass --size"),
    ],
)
def test_errors_of_a_folder_name_options(
    command: Command, pictures: Path, options: tuple[str, ...], needle: str
) -> None:
    code, _, err = command(*_train_on(pictures, *options))
    assert code == 2
    assert needle in err
    assert "split=" not in err
    assert "size=" not in err


def test_a_damaged_prior_is_bad_input(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "prior.safetensors"
    command(*TINY, "--out", str(out))
    out.write_bytes(out.read_bytes()[:-9])
    assert command("prior", "show", str(out), "--out", str(tmp_path / "images"))[0] == 4
    with pytest.raises(BadInputError):
        gias(prior=out)
