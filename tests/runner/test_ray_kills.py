"""Twenty kills of workers on Ray and five of the sweep lose nothing, repeat nothing and leave nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_twenty_kills_of_workers_and_five_of_the_sweep() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "kill_resume.py"), "--kills", "25", "--of-workers", "4"]
    command += ["--early", "0", "--on", "ray"]
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    found = json.loads(done.stdout)
    assert (found["kills"], found["kills_of_workers"]) == (25, 20)
    assert found["finished"] == found["cells"]
    assert found["finished_cells_run_again"] == found["orphaned_workers"] == 0
    assert found["files_equal"] is True
