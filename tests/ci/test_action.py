"""The GitHub Action: parsed, and its own steps run here against a small audit."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


def test_every_input_is_used_and_none_is_written_into_a_script() -> None:
    text = (ROOT / "action.yml").read_text()
    used = set(re.findall(r"inputs\.([\w-]+)", text))
    assert used == set(ACTION["inputs"])
    for step in STEPS.values():
        assert "${{" not in step.get("run", ""), "an input inside a script is run by the shell"
        assert "run" not in step or step["shell"] == "bash"
    assert ACTION["outputs"]["exit-code"]["value"] == "${{ steps.audit.outputs.exit-code }}"


def test_the_job_that_tries_the_action_uses_its_inputs_and_expects_what_they_give() -> None:
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["action"]
    (used,) = (step for step in job["steps"] if step.get("uses") == "./")
    assert set(used["with"]) <= set(ACTION["inputs"])
    required = {name for name, field in ACTION["inputs"].items() if field.get("required")}
    assert required <= set(used["with"])
    assert used["continue-on-error"], "else the step that looks at the exit code never runs"
    config = yaml.safe_load((ROOT / used["with"]["config"]).read_text())
    gate = used["with"].get("fail-above", config.get("fail_above"))
    expected = int(re.search(r"exit-code \}\}\" = (\d)", job["steps"][-1]["run"])[1])
    # A leak exits with 1 only where there is a gate, and an example of a network without defence leaks.
    assert (expected, gate is not None) == (1, True)


def _tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _run_step(name: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """One step as the runner runs it: `bash -e -o pipefail`, with its files."""
    (folder / "bin").mkdir(exist_ok=True)
    known = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "RUNNER_TEMP": str(folder),
        "HOME": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", STEPS[name]["run"]],
        cwd=folder,
        env={**known, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def _outputs(folder: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (folder / "output").read_text().splitlines())


def test_the_install_step_installs_this_project_with_its_pins(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    _tool(tmp_path / "bin", "python", 'printf "%s\\n" "$@" > words')
    done = _run_step("Install leakscope", tmp_path, TORCH_INDEX="https://example.org/cpu")
    assert done.returncode == 0, done.stderr
    words = (tmp_path / "words").read_text().splitlines()
    assert words[:3] == ["-m", "pip", "install"]
    assert words[words.index("-c") + 1] == str(ROOT / "constraints.txt")
    assert words[-1] == str(ROOT)


@pytest.mark.slow
def test_the_audit_step_audits_and_the_gate_step_fails(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    _tool(tmp_path / "bin", "leakscope", f'exec {sys.executable} -m leakscope "$@"')
    (tmp_path / "audit.yaml").write_text("{utility: null, workers: 1, victims: 1, attacks: [fc-inversion]}")
    done = _run_step(
        "Audit", tmp_path, CONFIG="audit.yaml", FAIL_ABOVE="15", OUT="run", ARGUMENTS="--quiet --batch-size 1"
    )
    assert done.returncode == 0, done.stderr
    assert _outputs(tmp_path) == {"exit-code": "1", "report": "run/report.html"}
    assert (tmp_path / "run" / "report.html").exists()
    assert b"<failure" in (tmp_path / "run.junit.xml").read_bytes()
    sarif = json.loads((tmp_path / "run.sarif").read_bytes())
    (result, *_) = sarif["runs"][0]["results"]
    assert result["ruleId"] == "LS001"
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "audit.yaml"
    assert "FAILED" in (tmp_path / "summary").read_text()
    # Every file that a later step uploads is there, and no cell is among them.
    kept = STEPS["Keep the report"]["with"]["path"].replace("${{ inputs.out }}", "run").split()
    assert all((tmp_path / name).exists() for name in kept)
    assert not any("cells" in name for name in kept)


@pytest.mark.parametrize(
    ("code", "expected"), [("0", 0), ("1", 1), ("3", 3), ("2", 2), ("4", 4), ("70", 70), ("130", 130), ("", 70)]
)
def test_the_gate_step_ends_as_the_audit_did(tmp_path: Path, code: str, expected: int) -> None:
    assert _run_step("Gate", tmp_path, CODE=code).returncode == expected


def test_hostile_inputs_are_words_and_not_commands(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    _tool(tmp_path / "bin", "leakscope", 'printf "%s\\n" "$@" > words; exit 2')
    hostile = "$(touch canary); `touch canary`"
    done = _run_step("Audit", tmp_path, CONFIG=hostile, FAIL_ABOVE="1; touch canary", OUT="o", ARGUMENTS=hostile)
    assert done.returncode == 0, done.stderr
    assert _outputs(tmp_path)["exit-code"] == "2"
    assert not (tmp_path / "canary").exists()
    assert hostile in (tmp_path / "words").read_text().splitlines()


def test_ci_runs_tests_and_checks() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "set -euo pipefail" in script
    assert re.findall(r"^make \w+$", script, re.MULTILINE) == ["make test", "make check"]
