"""The Makefile: an interpreter that was asked for is the one that is used, and what is fetched may be absent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What an outer `make test` hands down.
_OF_A_MAKE = ("PYTHON", "VENV", "EXTRAS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the Makefile asks for, with an environment of an interpreter that nobody has."""
    if shutil.which("make") is None:
        pytest.skip("no make here")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    for folder in (".venv", ".venv-extras"):
        _tool(tmp_path / folder / "bin" / "python", "echo 3.99.0 in /nowhere")
        (tmp_path / folder / ".installed").touch()
    return tmp_path


def _tool(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _make(project: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_MAKE}
    environment["PATH"] = path or environment["PATH"]
    return subprocess.run(
        ["make", *words], cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(("goal", "folder"), [("test", ".venv"), ("check", ".venv"), ("extras", ".venv-extras")])
def test_another_interpreter_is_refused_with_the_line_to_type(project: Path, goal: str, folder: str) -> None:
    done = _make(project, "-n", f"PYTHON={sys.executable}", goal)
    assert done.returncode == 2
    assert f"{folder} was made with Python 3.99.0" in done.stderr
    line = next(line for line in done.stderr.splitlines() if line.startswith("  make "))
    # The line that it tells works: both environments are new ones.
    again = _make(project, "-n", *line.split()[1:])
    assert again.returncode == 0, again.stderr
    assert f"-m venv {folder}-other" in again.stdout


def test_the_environment_that_is_there_is_used_when_none_is_asked_for(project: Path) -> None:
    assert _make(project, "-n", "test").returncode == 0


def test_the_same_interpreter_is_no_other(project: Path) -> None:
    (project / ".venv" / "bin" / "python").unlink()
    (project / ".venv" / "bin" / "python").symlink_to(sys.executable)
    # By another of its names.
    _tool(project / "mine", f'exec {sys.executable} "$@"')
    done = _make(project, "-n", "PYTHON=./mine", "test")
    assert done.returncode == 0, done.stderr


def test_cleaning_is_never_refused(project: Path) -> None:
    assert _make(project, f"PYTHON={sys.executable}", "clean").returncode == 0
    assert not (project / ".venv").exists()


@pytest.mark.parametrize("npm", ["exit 1", "echo half > sarif-2.1.0.json; exit 1", None])
def test_schemas_that_cannot_be_fetched_fail_no_test(project: Path, npm: str | None) -> None:
    tools = project / "tools"
    for name in ("make", "sh", "timeout", "rm", "mkdir", "mv", "tar"):
        _tool(tools / name, f'exec {shutil.which(name)} "$@"')
    if npm is not None:
        _tool(tools / "npm", npm)
    done = _make(project, "fetched-schemas", path=str(tools))
    assert done.returncode == 0, done.stderr
    assert "could not be fetched: the tests against them will be skipped" in done.stdout
    assert not (project / ".schemas").exists(), "half a schema would fail the tests"


def test_schemas_that_are_there_are_not_fetched_again(project: Path) -> None:
    (project / ".schemas").mkdir()
    for name in ("sarif-2.1.0.json", "jenkins-junit.xsd"):
        (project / ".schemas" / name).touch()
    done = _make(project, "fetched-schemas")
    assert (done.returncode, done.stdout) == (0, "")
    assert "fetched-schemas" in next(line for line in (ROOT / "Makefile").read_text().splitlines() if "test:" in line)
