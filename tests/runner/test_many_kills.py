"""Two hundred kills, of workers and of the sweep itself, lose nothing and repeat nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KILLS = 200


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_two_hundred_kills_of_workers_and_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    command = [sys.executable, str(ROOT / "benchmarks" / "kill_resume.py"), "--kills", str(KILLS)]
    # Four workers: most of the time goes into starting them, which they do side by side.
    command += ["--of-workers", "4", "--workers", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    found = json.loads(done.stdout)
    assert found["kills"] == KILLS
    # Both kinds, and mostly among running cells.
    assert 100 <= found["kills_of_workers"] <= 170
    assert found["finished"] == found["cells"]
    assert 0 < found["finished_when_last_killed"] < found["cells"]
    assert found["finished_cells_run_again"] == 0
    assert found["orphaned_workers"] == 0
    assert found["files_equal"] is True
    # A kill costs at most the cells that were running: four for the sweep, one for a worker.
    of_workers = found["kills_of_workers"]
    assert found["cells"] < found["executions"] <= found["cells"] + of_workers + 4 * (KILLS - of_workers)
