from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

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


def test_an_unknown_attack_suggests_the_nearest_and_exits_2(command: Command, tmp_path: Path) -> None:
    code, _, err = command("audit", "--attack", "inverting-gradient", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "Did you mean 'inverting-gradients'?" in err
    assert not (tmp_path / "run").exists(), "nothing half-written"


def test_an_unknown_option_suggests_the_nearest(command: Command, tmp_path: Path) -> None:
    code, _, err = command("audit", "--attack", "idlg:step=3", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "'steps'" in err


def test_dry_run_prices_and_runs_nothing(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("audit", "--defence", "none", "--defence", "prune:fraction=0.5", "--dry-run",
                           "--out", str(tmp_path / "run"))  # fmt: skip
    assert code == 0
    # 2 attacks × (undefended + unaware + knowing); accuracy without and with the defence.
    assert "6 attack cells, 2 accuracy cells; nothing was run" in out
    assert not (tmp_path / "run").exists()


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


def test_help_does_not_import_torch() -> None:
    script = "import sys; sys.argv=['leakscope','--help']\nfrom leakscope.cli import main\n" \
             "try: main()\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "audit" in done.stdout
