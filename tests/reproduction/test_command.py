"""`leakscope reproduce` in a checkout of its own: lists, prices, runs, survives a kill, stores, and says what holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import leakscope
from leakscope.reproduction.papers import PAPERS

SOURCE = Path(leakscope.__file__).parents[1]
RECIPE = """
import os, signal
from pathlib import Path

from leakscope.reproduction import CallValues, Claim, PaperNumber, PaperRecipe, RecipeScale, above, call_cell
from leakscope.reproduction.papers import AGIC

HERE = Path(__file__).parent


def measure(attack, victim):
    with (HERE / "ran.txt").open("a") as file:
        file.write(f"{attack} {victim}\\n")
    if (HERE / "kill").exists() and victim == 2:
        (HERE / "kill").unlink()
        os.kill(os.getppid(), signal.SIGKILL)
    return CallValues({"psnr": 10.0 + victim * (2 if attack == "new" else 1)})


def cells(scale):
    return [
        call_cell({"attack": one, "victim": place}, "reproductions.agic.table_1:measure", attack=one, victim=place)
        for place in range(1, scale.victims + 1)
        for one in ("new", "old")
    ]


RECIPE = PaperRecipe(
    name="agic/table-1",
    paper=AGIC,
    item="Table 1",
    title="new and old",
    scenario="C",
    claims=(Claim("new", "New is above | old.", "12 against 11", above("psnr", {"attack": "new"}, {"attack": "old"})),),
    numbers=(PaperNumber("Table 1", "new", "PSNR", 12.5, tags={"attack": "new"}),),
    scales=tuple(RecipeScale(name, 0.5, victims=3) for name in ("smoke", "cpu", "paper")),
    cells=cells,
)
"""


@pytest.fixture
def checkout(tmp_path):
    for key in PAPERS:
        folder = tmp_path / "reproductions" / key
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    (tmp_path / "reproductions" / "__init__.py").touch()
    (tmp_path / "reproductions" / "agic" / "table_1.py").write_text(RECIPE)
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "leakscope", "reproduce", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def ran(folder: Path) -> list[str]:
    return (folder / "reproductions/agic/ran.txt").read_text().splitlines()


def test_a_killed_run_goes_on_and_what_holds_is_written(checkout):
    (checkout / "reproductions/agic/kill").touch()
    first = run(checkout, "all", "--workers", "1", "--quiet")
    assert first.returncode == -signal.SIGKILL
    assert not (checkout / "reproductions/CLAIMS.md").exists()
    second = run(checkout, "all", "--workers", "1", "--quiet")
    assert second.returncode == 0, second.stderr
    # Of six cells the killed one alone ran twice.
    assert len(ran(checkout)) == 7
    assert "HOLDS WEAKLY: 2 [-0.4841, 4.484], n = 3 dB" in second.stdout
    assert "ours 14 [9.032, 18.97], n = 3" in second.stdout
    claims = (checkout / "reproductions/CLAIMS.md").read_text()
    assert "1 claims: 1 holds weakly." in claims
    assert "New is above \\| old." in claims
    stored = json.loads((checkout / "reproductions/results/agic/table_1.cpu.json").read_text())
    assert stored["cells"] == {"total": 6, "ok": 6, "others": [], "unexplained": 0}
    assert stored["claims"][0]["effect"] == 2.0
    assert "<h1" in (checkout / "runs/reproductions/agic/table-1/cpu/report.html").read_text()


def test_what_cannot_work_is_told_in_one_line(checkout):
    for words, said in (
        (["all", "--scale", "small"], "unknown scale"),
        (["all", "--scale", "smoke", "--store"], "smoke is none"),
        ([], "--list"),
        (["all", "--workers", "0"], "--workers"),
    ):
        found = run(checkout, *words)
        assert found.returncode == 2
        assert said in found.stderr
        assert len(found.stderr.splitlines()) == 1
