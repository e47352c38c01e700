"""What a cell is told, as JSON and back; cells of version 0.1 read the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from leakscope.audits import AttackCellSpec, TrainingCellSpec, load_config, make_plan, parse_config
from leakscope.audits.specs import parse_cell_spec
from leakscope.audits.subject import Subject
from leakscope.errors import UsageError
from leakscope.report import parse_summary, write_report
from leakscope.report.schema import PlannedAttack
from leakscope.runner import Cell
from leakscope.types import LocalTraining
from leakscope.version import __version__

OLD_RUN = Path(__file__).parent / "run_of_0_1"
NOISE = "gaussian-noise:sigma=0.01"
STRONG = "inverting-gradients:tv=1.0"
SMALL: dict[str, Any] = {
    "model_options": {"mlp": {"hidden": [4]}},
    "victims": 1,
    "attacks": ["fc-inversion"],
    "defences": ["none", NOISE],
    "local": {"lr": 0.1, "steps": 2},
}
# As version 0.1 wrote it, but for the hash of the data: outputs hold none any more.
ATTACK_OF_0_1: dict[str, Any] = {
    "kind": "attack",
    "subject": {
        "model": "mlp",
        "options": {"hidden": [4]},
        "weights": None,
        "weights_hash": None,
        "mode": "eval",
        "data": "digits",
        "size": None,
        "split": "test",
        "count": 1,
    },
    "attack": "fc-inversion",
    "defence": "none",
    "adaptive": False,
    "scenario": "C",
    "seed": 0,
    "victims": 1,
    "batch_size": 1,
    "lpips": False,
    "keep_images": True,
    "local": {"lr": 0.1, "steps": 2, "batch_size": 1},
}


def _without_software(spec: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name != "software"}


def test_a_cell_that_version_0_1_could_run_has_the_same_json() -> None:
    first = make_plan(parse_config(SMALL)).attacks[0]
    assert _without_software(first.to_json()) == ATTACK_OF_0_1
    assert first.key == Cell.of(first.to_json(), code_version=__version__).key
    training = make_plan(parse_config(SMALL)).trainings[0].to_json()
    assert training.keys() == {"kind", "subject", "defence", "training", "seed", "software"}


def test_a_training_is_told_of_the_audited_clients_where_it_matters() -> None:
    def trainings(**more: object) -> list[TrainingCellSpec]:
        return list(make_plan(parse_config({**SMALL, "defences": ["clip:norm=1", "dp-sgd"], **more})).trainings)

    assert [cell.audited is not None for cell in trainings()] == [False, False, True]
    shared = trainings(utility={"share": "delta", "rounds": 1})
    assert [cell.audited is not None for cell in shared] == [True, True, True]
    assert [cell.audited for cell in trainings(local=None)] == [None] * 3
    assert [parse_cell_spec(json.loads(json.dumps(cell.to_json()))) for cell in shared] == shared


def test_local_training_of_every_kind_comes_back_from_json() -> None:
    local = {"lr": 0.1, "epochs": 3, "optimiser": "adamw", "betas": [0.8, 0.9], "shuffle": True, "batch_size": 2}
    first = make_plan(parse_config({**SMALL, "local": local})).attacks[0]
    assert first.local == LocalTraining(0.1, None, 2, 3, "adamw", betas=(0.8, 0.9), shuffle=True)
    assert parse_cell_spec(json.loads(json.dumps(first.to_json()))) == first


def test_specs_come_back_from_json_as_they_were() -> None:
    for spec in make_plan(parse_config(SMALL)).cells:
        again = parse_cell_spec(spec.to_json())
        assert again == spec
        assert (again.key, again.label) == (spec.key, spec.label)
    assert isinstance(parse_cell_spec(ATTACK_OF_0_1), AttackCellSpec)
    assert parse_cell_spec(ATTACK_OF_0_1).local == LocalTraining(lr=0.1, steps=2)  # type: ignore[union-attr]


def test_what_changes_the_work_changes_the_key() -> None:
    plain = AttackCellSpec.model_validate(ATTACK_OF_0_1)
    others = [
        AttackCellSpec.model_validate({**ATTACK_OF_0_1, **change})
        for change in ({"rounds": 2}, {"limit": {"steps": 20, "of": 300}}, {"local": None}, {"seed": 1})
    ]
    assert len({plain.key, *(spec.key for spec in others)}) == 5
    assert others[1].limit == PlannedAttack(steps=20, of=300)
    assert parse_cell_spec(others[1].to_json()) == others[1]


def test_a_misspelt_field_is_not_ignored() -> None:
    with pytest.raises(ValueError, match="sede"):
        parse_cell_spec({**ATTACK_OF_0_1, "sede": 3})


def test_strong_attacks_are_added_once_and_only_for_one_who_knows() -> None:
    plan = make_plan(parse_config({**SMALL, "defences": ["none", NOISE, "clip:norm=1+laplacian-noise:scale=0.1"]}))
    added = [cell for cell in plan.attacks if cell.attack == STRONG]
    assert [(cell.defence, cell.adaptive) for cell in added] == [
        (NOISE, True),
        ("clip:norm=1+laplacian-noise:scale=0.1", True),
    ]


@pytest.mark.parametrize("change", [{"attacks": ["fc-inversion", STRONG]}, {"adaptive": False}, {"defences": ["none"]}])
def test_strong_attacks_are_not_added_where_they_are_named_or_nobody_knows(change: dict[str, Any]) -> None:
    config = parse_config({**SMALL, **change})
    cells = [(cell.attack, cell.defence, cell.adaptive) for cell in make_plan(config).attacks]
    assert len(cells) == len(set(cells))
    assert {attack for attack, _, _ in cells} == set(config.attacks)


def test_a_plan_may_shorten_a_strong_attack() -> None:
    planned = {"attacks": {STRONG: {"steps": 30, "of": 300}}}
    cell = next(c for c in make_plan(parse_config({**SMALL, "planned": planned})).attacks if c.attack == STRONG)
    assert cell.limit == PlannedAttack(steps=30, of=300)


@pytest.mark.parametrize(
    ("local", "needle"),
    [
        ({"lr": 0.1, "momentun": 0.9}, r"local\.momentun: .*Did you mean 'momentum'"),
        ({"lr": 0}, "local: LocalTraining needs"),
        ({"lr": "fast"}, r"local\.lr: "),
        ({"lr": 0.1, "optimiser": "adm"}, "Did you mean 'adam'"),
    ],
)
def test_local_training_is_checked_with_its_own_words(local: dict[str, Any], needle: str) -> None:
    with pytest.raises(UsageError, match=needle):
        parse_config({**SMALL, "local": local})


def test_pictures_need_not_be_square() -> None:
    config = parse_config({**SMALL, "size": [8, 6], "models": ["mlp"]})
    first = make_plan(config).attacks[0]
    assert first.subject.size == (8, 6)
    assert Subject(first.subject).input_shape == (1, 8, 6)
    assert parse_cell_spec(json.loads(json.dumps(first.to_json()))) == first


def test_rounds_reach_every_attack_cell() -> None:
    assert {cell.rounds for cell in make_plan(parse_config({**SMALL, "rounds": 2})).attacks} == {2}
    assert {cell.rounds for cell in make_plan(parse_config(SMALL)).attacks} == {None}


def test_a_run_folder_of_0_1_is_read(tmp_path: Path) -> None:
    shutil.copytree(OLD_RUN, tmp_path / "run")
    page = write_report(tmp_path / "run").read_text()
    assert "fc-inversion" in page
    assert "2 local steps of 1, rate 0.1" in page
    found = parse_summary(json.loads((OLD_RUN / "summary.json").read_text()))
    assert found.cells[0].local == LocalTraining(lr=0.1, steps=2)
    assert "lpips" not in found.cells[0].scores, "null in 0.1: not computed"
    assert len(found.cells[0].column("psnr")) == found.cells[0].n == 1
    assert found.counts is not None
    assert found.counts.failed == {"refused": 3}
    config = load_config(OLD_RUN / "config.yaml")
    assert {(cell.attack, cell.defence) for cell in make_plan(config).attacks} >= {
        (cell.attack, cell.defence) for cell in found.cells
    }
    assert isinstance(make_plan(config).trainings[0], TrainingCellSpec)


def test_a_cell_of_0_1_is_computed_again() -> None:
    # A client draws other numbers since then: what was measured before must not stand beside what is measured now.
    first = make_plan(parse_config(SMALL)).attacks[0]
    assert first.key != Cell.of(first.to_json(), code_version="0.1.0").key
