"""Networks, data, attacks and defences of the user's own in a plan, from Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import leakscope as ls
from leakscope.audits import Config, load_config, make_plan, parse_config
from leakscope.audits.specs import parse_cell_spec
from leakscope.audits.subject import Subject
from leakscope.errors import BadInputError, LeakscopeError, UsageError
from own_files import draw_photographs, save_rows, save_wrapped, write_module

pytestmark = pytest.mark.usefixtures("inline_workers")

ONE: dict[str, Any] = {"attacks": ["fc-inversion"], "victims": 2, "workers": 1}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of the user's module, in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return write_module(tmp_path)


def _plan(**values: Any) -> Any:
    return make_plan(parse_config({**ONE, **values}, allow_code=True))


def test_a_checkpoint_of_a_wrapped_model_is_what_the_workers_load(own: str, tmp_path: Path) -> None:
    draw_photographs(tmp_path / "photos")
    network = _plan(models=[f"{own}:photographs"], data=["photos"], size=32).attacks[0]
    other = Subject(network.subject).model()
    with torch.no_grad():
        for value in other.parameters():
            value.add_(0.25)
    save_wrapped(other, tmp_path / "w.pt")
    cell = _plan(models=[f"{own}:photographs"], data=["photos"], size=32, weights="w.pt").attacks[0]
    loaded = Subject(parse_cell_spec(cell.to_json()).subject).model().state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in other.state_dict().items())
    assert cell.key != network.key


def test_pictures_of_several_sizes_are_brought_to_one(own: str, tmp_path: Path) -> None:
    draw_photographs(tmp_path / "photos")
    cell = _plan(models=[f"{own}:wide"], data=["photos"], size=[8, 20]).attacks[0]
    again = parse_cell_spec(cell.to_json())
    assert again.subject.size == (8, 20)
    assert again.key == cell.key
    victims = Subject(again.subject).victims(victims=2, batch_size=1)
    assert [tuple(victim.inputs.shape) for victim in victims] == [(1, 3, 8, 20)] * 2
    with pytest.raises(UsageError, match="differ in size"):
        _plan(models=[f"{own}:wide"], data=["photos"])


def test_rows_of_numbers_keep_that_they_have_no_range(own: str, tmp_path: Path) -> None:
    save_rows(tmp_path / "rows.npz")
    cell = _plan(models=[f"{own}:rows"], data=["rows.npz"], bounds="none").attacks[0]
    assert Subject(cell.subject).victims(victims=2, batch_size=1)[0].bounds is None
    assert cell.to_json()["subject"]["bounds"] == "none"


def test_the_whole_audit_runs_from_python(own: str, tmp_path: Path) -> None:
    config = parse_config(
        {
            **ONE,
            "models": [f"{own}:rows"],
            "data": [f"{own}:table"],
            "bounds": "none",
            "defences": ["prune:fraction=0.9"],
            "local": {"lr": 0.1, "epochs": 1},
            "rounds": 2,
            "utility": {"rounds": 3, "clients": 2},
        },
        allow_code=True,
    )
    result = ls.run_campaign(config, tmp_path / "run", quiet=True)
    assert {cell.status for cell in result.summary.cells} <= {"ok", "diverged"}
    assert {(cell.n, cell.rounds, cell.server) for cell in result.summary.cells} == {(4, 2, "honest")}
    assert [cost.name for cost in result.summary.defences] == ["none", "prune:fraction=0.9"]
    assert not any(row.startswith("Accuracy") for row in result.summary.not_tested)
    again = ls.run_campaign(config, tmp_path / "run", quiet=True)
    assert again.sweep.executed == 0, "the folder's own config.yaml, which names code, was read to compare"
    with pytest.raises(UsageError, match="is code"):
        load_config(tmp_path / "run" / "config.yaml")


def test_data_too_few_to_train_on_leave_the_accuracy_out_and_say_so(own: str, tmp_path: Path) -> None:
    save_rows(tmp_path / "rows.npz")
    plan = _plan(models=[f"{own}:rows"], data=["rows.npz"], bounds="none")
    assert plan.trainings == ()
    assert plan.untrained[0].startswith(f"Accuracy of {own}:rows on rows.npz: 'rows.npz' has no train part")
    few = _plan(models=[f"{own}:rows"], data=[f"{own}:table"], bounds="none", utility={"clients": 21})
    assert "40 training examples are too few for 21 clients" in few.untrained[0]
    assert _plan(models=[f"{own}:rows"], data=[f"{own}:table"], bounds="none").untrained == ()


def test_a_changed_source_changes_the_key(own: str, tmp_path: Path) -> None:
    source = (tmp_path / f"{own}.py").read_text()
    changed = write_module(tmp_path, source + "\n# changed\n")
    first, second = (
        _plan(models=[f"{name}:rows"], data=[f"{name}:table"], bounds="none").attacks[0].subject
        for name in (own, changed)
    )
    assert first.code_hash != second.code_hash


def test_other_weights_from_the_same_source_change_the_key(own: str, tmp_path: Path) -> None:
    source = (tmp_path / f"{own}.py").read_text()
    reads = source.replace("manual_seed(0)", "manual_seed(int(Path('seed.txt').read_text()))")
    name = write_module(tmp_path, "from pathlib import Path\n" + reads)
    keys = []
    for seed in ("0", "1", "0"):
        (tmp_path / "seed.txt").write_text(seed)
        keys.append(_plan(models=[f"{name}:rows"], data=[f"{name}:table"], bounds="none").attacks[0].key)
    assert keys[0] == keys[2] != keys[1]


def test_the_source_of_an_own_attack_and_defence_is_part_of_the_key(own: str, tmp_path: Path) -> None:
    source = (
        "from leakscope.attacks.fc_inversion import fc_inversion\nfrom leakscope.defences.clip import clip\n"
        "def attack():\n    return fc_inversion()\ndef guard(norm):\n    return clip(norm=norm)\n"
    )
    first, second = (write_module(tmp_path, source + f"# {number}\n") for number in range(2))
    hashes = [
        cell.code_hash
        for name in (first, second)
        for cell in _plan(attacks=[f"{name}:attack"], defences=["none", f"clip:norm=2+{name}:guard:norm=1.0"]).cells
    ]
    half = len(hashes) // 2
    assert [value is None for value in hashes[:half]] == [False, False, False, True, False]
    assert not set(hashes[:half]) & set(hashes[half:]) - {None}
    assert {cell.code_hash for cell in _plan(defences=["clip:norm=1.0"]).cells} == {None}


def test_data_that_change_from_process_to_process_are_refused(own: str) -> None:
    plan = _plan(models=[f"{own}:rows"], data=[f"{own}:restless"], bounds="none")
    stale = replace(plan.inputs, hashes={f"{own}:restless": {"private": "0" * 64}})
    with pytest.raises(BadInputError, match="other examples in each process"):
        Subject(plan.attacks[0].subject, stale).victims(victims=2, batch_size=1)


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"models": ["nets:build"]}, "--model nets:build"),
        ({"data": ["nets:photos"]}, "--data nets:photos"),
        ({"attacks": ["fc-inversion", "mine:attack:steps=3"]}, "--attack mine:attack:steps=3"),
        ({"defences": ["none", "clip:norm=1+mine:guard"]}, r"--defence clip:norm=1\+mine:guard"),
    ],
)
def test_a_file_never_starts_code(tmp_path: Path, settings: dict[str, Any], option: str) -> None:
    file = tmp_path / "audit.yaml"
    file.write_text(yaml.safe_dump(settings))
    with pytest.raises(UsageError, match=rf"audit.yaml: .* is code, .* pass it as {option}$"):
        load_config(file)
    with pytest.raises(UsageError, match="is code"):
        parse_config(settings)
    assert isinstance(parse_config(settings, allow_code=True), Config)


def test_what_only_looks_like_code_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "audit.yaml"
    file.write_text(yaml.safe_dump({"data": ["folder:photos", "a:b.npz"], "attacks": ["idlg:steps=3"]}))
    assert load_config(file).data == ("folder:photos", "a:b.npz")


@pytest.mark.parametrize(
    ("settings", "needle"),
    [
        ({"normalise": "cifar10"}, "--normalise is for reference networks"),
        ({"classes": 10}, "--classes is for reference networks"),
        ({"size": 8}, "holds other inputs; leave size out"),
        ({"show_images": True}, "--show-images has no effect"),
        ({"data": ["digits"]}, "--bounds none has no effect"),
        ({"models": ["mlp"]}, "for other inputs name a network of your own"),
        ({"rounds": 1, "attacks": ["two_rounds:two_rounds"]}, "needs 2 rounds, got 1"),
    ],
)
def test_an_option_without_effect_is_refused(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], needle: str
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "doubles")
    save_rows(tmp_path / "rows.npz")
    with pytest.raises(LeakscopeError, match=needle):
        _plan(**{"models": [f"{own}:rows"], "data": ["rows.npz"], "bounds": "none", **settings})


def test_labels_are_checked_against_the_networks_outputs(own: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", inputs=np.zeros((4, 6), np.float32), targets=np.array([5, 5, 5, 5]))
    with pytest.raises(UsageError, match=r"many.npz cannot be audited: .*5"):
        _plan(models=[f"{own}:rows"], data=["many.npz"])
    more = _plan(models=["mlp"], data=["digits"], classes=100).attacks[0]
    assert Subject(more.subject).model()(torch.zeros(1, 1, 8, 8)).shape == (1, 100)
