"""A usage error of `audit` is told before torch is imported: seconds depend on the machine, imports do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import leakscope

_SCRIPT = """
import json, sys
from leakscope.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["leakscope", *words]
    try:
        main()
    except SystemExit as stop:
        print("code", stop.code, "torch" if "torch" in sys.modules else "light", file=sys.stderr)
"""
_WRONG = {
    "--attack dlgg": "Did you mean 'dlg'",
    "--attack idlg:step=3": "Did you mean 'steps'",
    "--attack idlg:steps": "write name:option=value",
    "--defence purne": "Did you mean 'prune'",
    "--defence clip:norm=1+prune:fration=0.1": "Did you mean 'fraction'",
    "--model mpl": "Did you mean 'mlp'",
    "--data digts": "Did you mean 'digits'",
    "--scenario x": "Known: A, B, C, D, E",
    "--fail-above nan": "fail_above",
    "--budget soon": "1h30m",
    "--local lr=0.1,momentun=0.9": "Did you mean 'momentum'",
    "--local lr=inf": "local.lr",
    "--size big": "--size",
    "--workers 0": "workers must be ≥ 1",
    "--victims 0": "victims",
    "--rounds x": "--rounds",
    "--weights not-here.pt": "check the path",
    "--config not-here.yaml": "check the path",
    "--mode evil": "mode",
    "--nonsense": "No such option",
}


def test_no_usage_error_waits_for_torch(tmp_path: Path) -> None:
    done = _start([["audit", *words.split()] for words in _WRONG], cwd=tmp_path)
    lines = done.stderr.splitlines()
    assert len(lines) == 2 * len(_WRONG), done.stderr
    for place, (words, needle) in enumerate(_WRONG.items()):
        message, ending = lines[2 * place : 2 * place + 2]
        assert needle in message, words
        assert ending in ("code 2 light", "code 4 light"), (words, message)
    assert list(tmp_path.iterdir()) == [], "nothing half-written"


@pytest.mark.parametrize("words", ["list attacks", "list defences", "list models", "audit --schema"])
def test_lists_do_not_wait_for_torch(words: str) -> None:
    done = _start([words.split()])
    assert done.stderr.splitlines()[-1] == "code 0 light", done.stderr


def _start(commands: list[list[str]], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(commands)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        # Whatever else is installed, and from whichever folder.
        env={**os.environ, "PYTHONPATH": str(Path(leakscope.__file__).parents[1])},
        check=False,
    )
