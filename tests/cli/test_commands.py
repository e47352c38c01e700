from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("inline_workers")

Command = Callable[..., tuple[int, str, str]]


def test_list_shows_every_registered_name(command: Command) -> None:
    from leakscope.registry import ATTACKS, DEFENCES

    code, out, _ = command("list", "--json")
    tables = json.loads(out)
    assert code == 0
    assert set(tables["attacks"]) == set(ATTACKS)
    assert set(tables["defences"]) == set(DEFENCES)
    assert set(tables["scenarios"]) == set("ABCDE")
    assert all(tables["attacks"].values()), "every attack has a first line to show"


@pytest.mark.parametrize("kind", ["attacks", "defences"])
def test_list_shows_the_options_of_one_with_defaults_and_paper(command: Command, kind: str) -> None:
    from leakscope.catalogue import ATTACKS, DEFENCES, declared_options

    for name in ATTACKS if kind == "attacks" else DEFENCES:
        code, out, _ = command("list", kind, name)
        assert code == 0
        for option, default in declared_options(kind[:-1], name).items():
            assert f"  {option:22} {default}" in out
        assert len(out.rpartition("paper: ")[2]) > 10


def test_list_refuses_a_name_that_is_not_there(command: Command) -> None:
    code, _, err = command("list", "attacks", "idgl")
    assert code == 2
    assert "Did you mean 'idlg'?" in err
    code, _, err = command("list", "models", "mlp")
    assert code == 2
    assert "have no options" in err


@pytest.mark.parametrize("letter", ["b", "B"])
def test_scenario_letters_in_either_case(letter: str) -> None:
    from leakscope.audits import parse_config
    from leakscope.observation.scenario import get_scenario

    assert parse_config({"scenarios": [letter]}).scenarios == ("B",)
    assert get_scenario(letter).name == "B"


def test_an_unknown_attack_suggests_the_nearest_and_exits_2(command: Command, tmp_path: Path) -> None:
    code, _, err = command("audit", "--attack", "inverting-gradient", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "Did you mean 'inverting-gradients'?" in err
    assert not (tmp_path / "run").exists(), "nothing half-written"


def test_an_unknown_option_suggests_the_nearest(command: Command, tmp_path: Path) -> None:
    code, _, err = command("audit", "--attack", "idlg:step=3", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "'steps'" in err


@pytest.mark.slow
def test_dry_run_prices_and_runs_nothing(command: Command, tmp_path: Path) -> None:
    words = "audit --defence none --defence prune:fraction=0.5 --dry-run --workers 1 --out"
    code, out, _ = command(*words.split(), str(tmp_path / "run"))
    assert code == 0
    # 2 attacks × (undefended + unaware + knowing); accuracy without and with the defence.
    assert "6 attack cells, 2 accuracy cells; nothing was run but samples" in out
    assert "mlp on digits: fc-inversion against prune:fraction=0.5 knowing it, C, seed 0" in out
    assert "closed form" in out
    assert "with 1 worker" in out
    assert not (tmp_path / "run").exists()


def test_dry_run_as_json_tells_what_a_budget_would_do(command: Command, tmp_path: Path) -> None:
    words = (
        "audit --attack inverting-gradients:steps=9000000 --attack adam-l1 --victims 1 --budget 20m "
        "--dry-run --json --workers 1 --out"
    )
    code, out, _ = command(*words.split(), str(tmp_path / "run"))
    found = json.loads(out)
    assert code == 0
    assert found["budget"] == 1200
    length = found["planned"]["attacks"]["inverting-gradients:steps=9000000"]
    assert 20 <= length["steps"] < length["of"] == 9_000_000
    lines = {line["attack"]: line for line in found["lines"]}
    assert lines["inverting-gradients:steps=9000000"]["planned_steps"] == length["steps"]
    assert lines["adam-l1"]["at_most"] == 0
    assert lines["adam-l1"]["notes"][0].startswith("refused: attack 'adam-l1' needs the labels")
    assert 0 < found["totals"]["seconds"] <= 1200
    assert not (tmp_path / "run").exists()


def test_a_budget_that_is_no_length_of_time_exits_2(command: Command, tmp_path: Path) -> None:
    code, _, err = command("audit", "--budget", "soon", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "1h30m" in err
    assert err.count("'soon'") == 1
    assert "Value error" not in err
    assert not (tmp_path / "run").exists()


def test_no_workers_exits_2(command: Command, tmp_path: Path) -> None:
    code, _, err = command("audit", "--workers", "0", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "workers must be ≥ 1, got 0" in err
    assert not (tmp_path / "run").exists()


def test_a_run_prints_why_cells_were_refused(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from leakscope.audits import run
    from leakscope.report import SelfCheck

    monkeypatch.setattr(run, "require_self_check", lambda: SelfCheck(name="planted image", psnr=60.0, passed=True))
    config = tmp_path / "c.yaml"
    config.write_text("{utility: null, workers: 1, victims: 1, seeds: [0, 1], attacks: [fc-inversion, adam-l1]}")
    code, out, _ = command("audit", "--config", str(config), "--quiet", "--out", str(tmp_path / "run"))
    assert code == 0
    assert "LEAK: " in out
    assert "> 20 dB (worst of 1 private example; 1 above" in out
    lines = out.splitlines()
    assert "2 of 4 cells ok, 2 refused" in lines
    (reason,) = [line for line in lines if line.startswith("refused: ")]
    assert reason.startswith("refused: adam-l1: attack 'adam-l1' needs the labels")
    assert reason.endswith("(2 cells)"), "one line, however long"
    assert "{" not in out


def test_schema_is_valid_json(command: Command) -> None:
    code, out, _ = command("audit", "--schema")
    assert code == 0
    assert "attacks" in json.loads(out)["properties"]


@pytest.mark.parametrize(
    ("text", "needle"),
    [
        ("modles: [mlp]", "Did you mean 'models'?"),
        ("victims: 0", "greater than or equal to 1"),
        ("- a list", "mapping"),
        ("a: [", "YAML"),
        ("!!python/object/apply:os.system ['touch canary']", "YAML"),
    ],
)
def test_a_bad_configuration_is_one_typed_error(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, needle: str
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "c.yaml"
    config.write_text(text)
    code, _, err = command("audit", "--config", str(config), "--out", "run")
    assert code in (2, 4)
    assert needle in err
    assert not (tmp_path / "canary").exists()
    assert not (tmp_path / "run").exists()


def test_report_of_nothing_is_bad_input(command: Command, tmp_path: Path) -> None:
    code, _, err = command("report", str(tmp_path))
    assert code == 4
    assert "summary" in err


def test_doctor_passes_its_self_check(command: Command) -> None:
    code, out, _ = command("doctor", "--json")
    found = json.loads(out)
    assert code == 0
    assert "passed" in found["self-check"]
    assert "digits" in found["data sets here"]


def test_doctor_imports_extras_and_says_how_to_install_what_is_missing(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from leakscope.cli import doctor

    (tmp_path / "loads_here.py").write_text("")
    (tmp_path / "breaks_here.py").write_text("raise RuntimeError('compiled for another torch')")
    monkeypatch.syspath_prepend(tmp_path)
    extras = {"good": ("loads_here",), "broken": ("loads_here", "breaks_here"), "absent": ("not_here",)}
    monkeypatch.setattr(doctor, "EXTRAS", extras)
    code, out, _ = command("doctor", "--json")
    found = json.loads(out)
    assert code == 0, "extras are optional"
    assert found["extras"] == "good (loads_here of unknown version)"
    assert found["missing extras"] == (
        "broken: breaks_here does not load (RuntimeError: compiled for another torch); absent: no package not_here"
    )
    assert found["install them"] == "in leakscope's clone: pip install -c constraints.txt -e '.[broken,absent]'"


def test_doctor_imports_what_it_needs_and_says_what_does_not_load(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from leakscope.cli import doctor

    (tmp_path / "breaks_here.py").write_text("raise ImportError('undefined symbol: x')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "PACKAGES", {"numpy": "numpy", "scikit-image": "breaks_here"})
    monkeypatch.setattr(doctor, "EXTRAS", {})
    code, out, _ = command("doctor", "--json")
    found = json.loads(out)
    assert code == 3, "nothing can be measured with it"
    assert found["FAILED"] == "scikit-image: breaks_here does not load (ImportError: undefined symbol: x)"
    assert found["packages"].startswith("numpy 2.")
    assert "self-check" not in found


def test_doctor_knows_every_dependency() -> None:
    import re

    from leakscope.cli.doctor import PACKAGES

    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    block = text.partition("dependencies = [")[2].partition("\n]")[0]
    assert set(re.findall(r'^    "([a-z0-9-]+)', block, re.MULTILINE)) == set(PACKAGES)


@pytest.mark.parametrize("debug", [False, True])
def test_an_error_of_our_own_is_no_leak(command: Command, monkeypatch: pytest.MonkeyPatch, debug: bool) -> None:
    def fail() -> None:
        raise RuntimeError("shapes differ\nsecond line")

    monkeypatch.setattr("leakscope.cli.listing._tables", fail)
    monkeypatch.setenv("LEAKSCOPE_DEBUG", "1" if debug else "")
    code, _, err = command("list")
    assert code == 70
    last = err.splitlines()[-1]
    assert last.startswith("leakscope: internal error (RuntimeError: shapes differ); please report it with its log")
    assert ("Traceback" in err) is debug
    assert debug or err.count("\n") == 1


def test_help_does_not_import_torch() -> None:
    script = (
        "import sys; sys.argv=['leakscope','--help']\nfrom leakscope.cli import main\n"
        "try: main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "audit" in done.stdout
