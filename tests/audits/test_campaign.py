from __future__ import annotations

import json
from pathlib import Path

import pytest

from leakscope.audits import Config, make_plan, parse_config, run_campaign, self_check
from leakscope.audits import run as run_module
from leakscope.errors import InconclusiveError, MissingDataError, UsageError
from leakscope.files import unpack_tensors

SMALL = {
    "title": "small <script>alert(1)</script>",
    "models": ["mlp"],
    "model_options": {"mlp": {"hidden": [32], "activation": "sigmoid"}},
    "data": ["digits"],
    "victims": 2,
    "attacks": ["fc-inversion", "inverting-gradients:steps=50"],
    "defences": ["none", "gaussian-noise:sigma=0.01"],
    "utility": {"rounds": 20, "clients": 2},
    "workers": 2,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("campaign") / "run"
    run_campaign(parse_config(SMALL), folder, quiet=True, command="leakscope audit")
    return folder


def _summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def test_every_cell_is_there_with_its_numbers(finished: Path) -> None:
    found = _summary(finished)
    assert found["counts"]["total"] == len(found["cells"]) == 7
    assert found["counts"]["ok"] == 7
    undefended = next(c for c in found["cells"] if c["attack"] == "fc-inversion" and c["defence"] == "none")
    assert undefended["stats"]["psnr"]["worst"] >= 80
    assert undefended["n"] == 2
    assert {"median", "worst", "q05", "q95", "ci_low", "ci_high"} <= undefended["stats"]["psnr"].keys()
    assert found["verdict"]["status"] == "leak"


def test_a_defence_is_measured_against_the_attacker_who_knows_it(finished: Path) -> None:
    noisy = [c for c in _summary(finished)["cells"] if c["attack"] == "fc-inversion" and c["defence"] != "none"]
    naive, knowing = sorted(noisy, key=lambda cell: cell["adaptive"])
    assert naive["stats"]["psnr"]["median"] + 1 < knowing["stats"]["psnr"]["median"]


def test_an_attack_that_is_stronger_under_a_defence_is_run_too_and_said_so(finished: Path) -> None:
    found = _summary(finished)
    extra = [cell for cell in found["cells"] if cell["attack"] not in SMALL["attacks"]]
    assert [(cell["attack"], cell["defence"], cell["adaptive"]) for cell in extra] == [
        ("inverting-gradients:tv=1.0", "gaussian-noise:sigma=0.01", True)
    ]
    assert extra[0]["notes"][0] == "also run because it is stronger under gaussian-noise:sigma=0.01"
    sentence = "Also run because it is stronger under gaussian-noise:sigma=0.01: inverting-gradients:tv=1.0."
    assert sentence in found["verdict"]["sentences"]
    assert sentence in (finished / "report.html").read_text()
    assert "inverting-gradients" not in next(row for row in found["not_tested"] if row.startswith("Attacks"))


def test_accuracy_cost_is_measured(finished: Path) -> None:
    plain, noisy = _summary(finished)["defences"]
    assert plain["name"] == "none"
    assert plain["accuracy_drop"] == 0
    assert noisy["accuracy_drop"] == pytest.approx(plain["accuracy"] - noisy["accuracy"])
    low, high = noisy["accuracy_drop_ci"]
    assert low < noisy["accuracy_drop"] < high
    assert high - low > max(one["ci"][1] - one["ci"][0] for one in (plain, noisy)), "both trainings are uncertain"
    assert plain["accuracy_drop_ci"] is None


def test_the_report_is_inert_and_self_contained(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    assert "<script>alert(1)" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert len(page) < 5_000_000
    assert "data:image/png" in page, "pictures of embedded data are shown"


def test_running_again_runs_nothing_and_changes_no_byte(finished: Path) -> None:
    before = {path.name: path.read_bytes() for path in (finished / "cells").iterdir()}
    summary = _summary(finished)
    again = run_campaign(parse_config(SMALL), finished, quiet=True, command="leakscope audit")
    assert again.sweep.executed == 0
    assert {path.name: path.read_bytes() for path in (finished / "cells").iterdir()} == before
    assert _summary(finished) == summary


@pytest.mark.usefixtures("inline_workers")
def test_one_worker_gives_the_same_bytes_as_two(finished: Path, tmp_path: Path) -> None:
    run_campaign(parse_config(SMALL), tmp_path / "one", quiet=True, workers=1, command="leakscope audit")
    one = {path.name: path.read_bytes() for path in (tmp_path / "one" / "cells").iterdir()}
    two = {path.name: path.read_bytes() for path in (finished / "cells").iterdir()}
    assert one == two


def test_other_settings_do_not_enter_a_finished_directory(finished: Path) -> None:
    with pytest.raises(UsageError, match="other settings"):
        run_campaign(parse_config({**SMALL, "victims": 1}), finished, quiet=True)


@pytest.mark.usefixtures("inline_workers")
def test_hidden_images_are_not_even_stored(tmp_path: Path) -> None:
    config = parse_config({**SMALL, "attacks": ["fc-inversion"], "defences": ["none"], "utility": None, "workers": 1})
    run_campaign(config, tmp_path / "run", quiet=True, show_images=False)
    assert "data:image/png" not in (tmp_path / "run" / "report.html").read_text()
    stored = next((tmp_path / "run" / "cells").iterdir())
    assert unpack_tensors(stored.read_bytes(), name=stored.name)[0] == {}


def test_status_line_and_exit_code_are_one_decision(finished: Path) -> None:
    found = run_campaign(parse_config(SMALL), finished, quiet=True, command="leakscope audit")
    judged = found.summary.verdict
    assert (found.exit_code, judged.exit_code, judged.status) == (0, 0, "leak")
    assert judged.line.startswith(f"LEAK: {judged.worst.psnr:.1f} dB > 20 dB (worst of 2 private examples; 2 above")
    assert "no gate was set" in judged.line


@pytest.mark.parametrize(("above", "code", "head"), [(30.0, 1, "FAILED"), (200.0, 0, "PASSED")])
@pytest.mark.usefixtures("inline_workers")
def test_the_report_follows_the_gate(tmp_path: Path, above: float, code: int, head: str) -> None:
    small = {**SMALL, "attacks": ["fc-inversion"], "defences": ["none"], "utility": None, "workers": 1}
    found = run_campaign(parse_config({**small, "fail_above": above}), tmp_path / "run", quiet=True)
    assert found.exit_code == code
    assert found.summary.threshold_psnr == above
    assert found.summary.verdict.status == {0: "within", 1: "leak"}[code]
    assert found.summary.verdict.line.startswith(f"{head}: ")
    assert "no gate was set" not in found.summary.verdict.line


def test_the_self_check_passes_here() -> None:
    assert self_check().passed


def test_a_sabotaged_optimiser_stops_the_audit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_module, "CANARIES", (("inverting-gradients:steps=1", 25.0),))
    with pytest.raises(InconclusiveError, match="self-check failed"):
        run_campaign(parse_config(SMALL), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "report.html").exists()


def test_a_missing_set_fails_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKSCOPE_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match="cifar10"):
        run_campaign(Config(data=("cifar10",)), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_cells_are_named_by_what_they_read() -> None:
    first = make_plan(parse_config(SMALL))
    other = make_plan(parse_config({**SMALL, "seeds": [1]}))
    assert {c.key for c in first.attacks}.isdisjoint(c.key for c in other.attacks)
    assert [c.key for c in make_plan(parse_config(SMALL)).cells] == [c.key for c in first.cells]
