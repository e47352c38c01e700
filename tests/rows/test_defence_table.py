"""The table of all defences: what it prints of an audit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from reproductions import defence_table, defences, victims
from reproductions.defence_table import Accuracy, DefenceCell, Measured
from reproductions.defences import DEFENCES, PARTS

from data_folder import data_root, needs
from leakscope.audits import parse_config
from leakscope.audits.plan import make_plan
from leakscope.models import build
from leakscope.registry import defence_from_spec
from leakscope.report.checks import NOT_RUN
from leakscope.report.schema import CellRecord

ATTACK = PARTS["lenet5"].attack
ATS = DEFENCES[-1]


def cell(defence: str, psnr: list[float], *, attack: str = ATTACK, **options: Any) -> CellRecord:
    given = {"key": f"{attack}{defence}{options}", "model": "lenet5", "data": "cifar10", "scenario": "B", "seed": 0}
    given |= {"attack": attack, "defence": defence, "status": "ok", "scores": {"psnr": psnr}, "victims": 4}
    return CellRecord(**(given | options))


def lines(*cells: CellRecord, costs: dict[str, Accuracy] | None = None) -> dict[str, list[str]]:
    """Columns by defence."""
    measured = Measured("lenet5", "cifar10", tuple(map(DefenceCell.of, cells)), costs or {})
    rows = [line.strip("| ").split(" | ") for line in printed(measured)]
    return {row[0]: row[1:] for row in rows if len(row) == 5}


def printed(measured: Measured) -> list[str]:
    return list(defence_table.table(measured, attack=ATTACK, defences=DEFENCES))


def test_both_attackers_are_shown_by_median_and_worst_picture():
    found = lines(
        cell("none", [10.0, 20.0, 31.0, 12.0]),
        cell("soteria", [5.0, 6.0, 7.0, 9.0]),
        cell("soteria", [15.0, 16.0, 17.0, 19.0], adaptive=True),
    )
    assert found["none"][:3] == ["16.0, 31.0", "–", "31.0 (inverting-gradients)"]
    assert found["soteria"][:3] == ["6.5, 9.0", "16.5, 19.0", "19.0 (inverting-gradients knowing it)"]


def test_what_was_trained_on_stands_in_brackets():
    found = lines(cell(ATS, [7.0, 8.0], trained_scores={"psnr": [20.0, 30.0]}))
    assert found[ATS][0] == "7.5, 8.0 (25.0, 30.0)"


def test_no_evidence_says_so_and_the_strongest_attack_may_be_another_one():
    found = lines(
        cell("precode", [7.0], status="unexplained"),
        cell("precode", [], status="refused", adaptive=True, scores={}),
        cell("precode", [44.0], attack="fc-inversion"),
    )
    assert found["precode"][:3] == ["7.0, 7.0 unexplained", "refused", "44.0 (fc-inversion)"]


def test_accuracy_comes_with_its_interval_and_says_where_it_is_chance():
    costs = {"none": Accuracy(71.25, 68.0, 74.5, at_chance=False), "precode": Accuracy(10.0, 8.0, 12.0, at_chance=True)}
    found = lines(cell("none", [10.0]), cell("precode", [10.0]), costs=costs)
    assert found["none"][3] == "71.2 [68.0, 74.5]"
    assert found["precode"][3] == "10.0 [8.0, 12.0], chance"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("data", defences.DATA)
def test_every_part_is_a_configuration_that_audits_take(part: str, data: str):
    config = parse_config(PARTS[part].settings(data), checking=False)
    assert config.victims == 4
    assert len({*config.defences}) == len(DEFENCES)
    assert all(defence_from_spec(spec) is not None for spec in config.defences[1:])


@pytest.mark.data
@needs("cifar10.npz")
@pytest.mark.slow
def test_what_there_is_no_time_for_are_cells_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKSCOPE_DATA", str(data_root()))
    part = PARTS["convnet"]
    whole = make_plan(parse_config(replace(part, no_time_for={}).settings("cifar10"), checking=False))
    left = make_plan(parse_config(part.settings("cifar10"), checking=False))
    gone = {one.label for one in whole.cells} - {one.label for one in left.cells}
    assert gone == set(part.left_out("cifar10"))
    assert len(gone) == 2


def test_the_narrow_network_is_the_convnet_at_a_quarter_of_its_width():
    narrow, whole = victims.narrow_convnet(3, 32), build("convnet", num_classes=10)

    def widths(model: torch.nn.Module) -> list[int]:
        return [one.out_channels for one in model.modules() if isinstance(one, torch.nn.Conv2d)]

    assert [4 * width for width in widths(narrow)] == widths(whole)
    assert narrow(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def arguments(monkeypatch: pytest.MonkeyPatch, out: Path, *options: str) -> None:
    given = ["defences", "--parts", "convnet", "--data", "cifar10", "--out", str(out), *options]
    monkeypatch.setattr(sys, "argv", given)
    monkeypatch.setattr(defence_table, "RESULTS", out / "kept")


def campaign(*cells: CellRecord, stopped: bool = False, seen: list[Any] | None = None) -> Callable[..., Any]:
    """An audit that comes to these cells."""

    def run(config: Any, folder: Path) -> Any:
        if seen is not None:
            seen.append((config.defences, folder))
        sweep = SimpleNamespace(interrupted=stopped)
        return SimpleNamespace(sweep=sweep, exit_code=143, summary=SimpleNamespace(cells=cells, defences=()))

    return run


def test_a_stopped_audit_keeps_what_it_has_and_ends_the_program_before_its_trainings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cells = (cell("none", [10.0]), cell("soteria", [], status=NOT_RUN, scores={}))
    monkeypatch.setattr(defences, "run_campaign", campaign(*cells, stopped=True))
    arguments(monkeypatch, tmp_path)
    monkeypatch.setattr(defences, "narrow_costs", lambda *args, **options: pytest.fail("went on training"))
    with pytest.raises(SystemExit) as ended:
        defences.main()
    assert ended.value.code == 143
    kept = Measured("convnet", "cifar10", (), {}).load()
    assert kept is not None
    assert [one.defence for one in kept.cells] == ["none"]


def test_some_lines_of_the_table_are_added_to_those_that_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Any] = []
    arguments(monkeypatch, tmp_path, "--defences", "soteria", "none")
    before = (cell("none", [10.0]), cell("precode", [11.0]))
    costs = {"none": Accuracy(71.0, 68.0, 74.0, at_chance=False), "precode": Accuracy(9.0, 8.0, 12.0, at_chance=True)}
    Measured("convnet", "cifar10", tuple(map(DefenceCell.of, before)), costs).store()
    monkeypatch.setattr(defences, "run_campaign", campaign(cell("none", [20.0]), cell("soteria", [5.0]), seen=seen))
    again = {"none": Accuracy(72.0, 70.0, 74.0, at_chance=False)}
    monkeypatch.setattr(defences, "narrow_costs", lambda data, cache, chosen: again)
    defences.main()
    kept = Measured("convnet", "cifar10", (), {}).load()
    assert kept is not None
    assert {one.defence: one.psnr for one in kept.cells} == {"none": (20.0,), "precode": (11.0,), "soteria": (5.0,)}
    assert {spec: one.mean for spec, one in kept.costs.items()} == {"none": 72.0, "precode": 9.0}
    ((asked, folder),) = seen
    assert asked == ("none", "soteria")
    assert folder != tmp_path / "convnet" / "cifar10" / "all"


def test_accuracies_are_trained_without_an_attack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments(monkeypatch, tmp_path, "--accuracies", "--defences", "none")
    Measured("convnet", "cifar10", (DefenceCell.of(cell("none", [10.0])),), {}).store()
    monkeypatch.setattr(defences, "run_campaign", lambda *args: pytest.fail("attacked"))
    again = {"none": Accuracy(72.0, 70.0, 74.0, at_chance=False)}
    monkeypatch.setattr(defences, "narrow_costs", lambda data, cache, chosen: again if chosen == ("none",) else {})
    defences.main()
    kept = Measured("convnet", "cifar10", (), {}).load()
    assert kept is not None
    assert (kept.costs, kept.cells[0].psnr) == (again, (10.0,))


def test_accuracies_alone_are_of_the_network_that_is_trained_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments(monkeypatch, tmp_path, "--accuracies", "--parts", "lenet5")
    with pytest.raises(SystemExit):
        defences.main()
    assert "convnet" in capsys.readouterr().err


def test_a_training_of_one_seed_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked, pictures = {}, SimpleNamespace(inputs=torch.zeros(2, 1, 28, 28))

    def train(defence: Any, *_given: Any, seeds: tuple[int, ...], **_others: Any) -> Any:
        asked[defence.name] = seeds
        return SimpleNamespace(accuracy=0.5, interval=(0.4, 0.6), at_chance=False)

    monkeypatch.setattr(defences, "train_with", train)
    monkeypatch.setattr(defences.ls.data, "load", lambda *_given, **_options: pictures)
    found = defences.narrow_costs("fashion-mnist", tmp_path, ("prune:fraction=0.7", "soteria"))
    assert asked == {"prune": (0, 1, 2), "soteria": (0,)}
    assert str(found["soteria"]) == "50.0 [40.0, 60.0], one seed"
    assert str(found["prune:fraction=0.7"]) == "50.0 [40.0, 60.0]"


def test_a_shorter_training_claims_the_same_privacy_with_its_own_steps():
    private = [spec for spec in DEFENCES if spec.startswith("dp-sgd")]
    assert len(private) == 2
    for spec in private:
        assert f"steps={defences.NARROW['rounds']}," in defences.narrow_spec(spec)
        assert spec.split("epsilon=")[1] == defences.narrow_spec(spec).split("epsilon=")[1]
    assert defences.narrow_spec("soteria") == "soteria"


def test_printing_alone_runs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    arguments(monkeypatch, tmp_path, "--print-only")
    monkeypatch.setattr(defences, "run_campaign", lambda *args: pytest.fail("ran"))
    defences.main()
    assert capsys.readouterr().out == ""
    Measured("convnet", "cifar10", (DefenceCell.of(cell("none", [10.0])),), {}).store()
    defences.main()
    assert "**convnet, cifar10**" in capsys.readouterr().out


def test_what_is_kept_prints_the_same_table(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(defence_table, "RESULTS", tmp_path)
    cells = (cell("none", [10.0, 20.5]), cell(ATS, [7.0], adaptive=True, trained_scores={"psnr": [20.0]}))
    costs = {"none": Accuracy(71.25, 68.0, 74.5, at_chance=False)}
    measured = Measured("lenet5", "cifar10", tuple(map(DefenceCell.of, cells)), costs)
    assert measured.load() is None
    measured.store()
    again = Measured("lenet5", "cifar10", (), {}).load()
    assert again == measured
    assert printed(again) == printed(measured)
