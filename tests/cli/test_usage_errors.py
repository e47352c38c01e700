"""A usage error of `audit` is told before torch is imported: seconds depend on the machine, imports do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import leakscope
from leakscope.errors import UsageError
from leakscope.user_code import check_findable

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
    "--attack idlg:steps=-1": "attack 'idlg' needs a whole number steps ≥ 1, got -1",
    "--attack inverting-gradients:restarts=0": "restarts ≥ 1",
    "--attack inverting-gradients:lr=fast": "a finite rate lr ≥ 0, got 'fast'",
    "--attack idlg:retries=0.5": "a whole number retries ≥ 0",
    "--defence prune:fraction=2": "prune needs 0 ≤ fraction < 1, got 2",
    "--defence clip:norm=0": "clip needs norm > 0, got 0",
    "--defence clip:norm=1+gaussian-noise:sigma=-1": "a finite sigma ≥ 0, got -1",
    "--normalise foo": "no normalisation constants are known for 'foo'",
    "--size 4097": "from 1 to 4096",
    "--bounds x": "--bounds must be 'none', two numbers",
    "--bounds 1,0": "the lower first",
    "--data /nowhere": "'/nowhere' is not a folder",
    "--data folder:nowhere": "'nowhere' is not a folder",
    "--data nowhere.npz": "no such file; check the path",
    "--data nomod:load": "No module named 'nomod'",
    "--model nomod:build": "cannot import 'nomod:build': ModuleNotFoundError: No module named 'nomod'",
    "--attack nomod.inner:attack": "No module named 'nomod'",
    "--defence clip:norm=1+nomod:defend": "cannot import 'nomod:defend'",
}
_WRONG_ATTACK = {
    "u.pt --model mpl": "Did you mean 'mlp'",
    "u.pt --model nomod:build": "No module named 'nomod'",
    "u.pt --model mlp --attack idlg:steps=-1": "steps ≥ 1",
    "u.pt --model mlp --bounds x": "--bounds must be",
    "u.pt --model mlp --normalise foo": "no normalisation constants",
    "u.pt --model mlp --timeout soon": "--timeout",
    "u.pt --model mlp": "no such file",
}


@pytest.mark.parametrize(("command", "wrong"), [("audit", _WRONG), ("attack", _WRONG_ATTACK)])
def test_no_usage_error_waits_for_torch(tmp_path: Path, command: str, wrong: dict[str, str]) -> None:
    done = _start([[command, *words.split()] for words in wrong], cwd=tmp_path)
    lines = done.stderr.splitlines()
    assert len(lines) == 2 * len(wrong), done.stderr
    for place, (words, needle) in enumerate(wrong.items()):
        message, ending = lines[2 * place : 2 * place + 2]
        assert needle in message, words
        assert ending in ("code 2 light", "code 4 light"), (words, message)
    assert list(tmp_path.iterdir()) == [], "nothing half-written"


@pytest.mark.parametrize("words", ["list attacks", "list defences", "list models", "audit --schema"])
def test_lists_do_not_wait_for_torch(words: str) -> None:
    done = _start([words.split()])
    assert done.stderr.splitlines()[-1] == "code 0 light", done.stderr


def test_code_is_found_in_the_working_folder_and_in_packages_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_alone.py").write_text("raise SystemExit('imported')")
    (tmp_path / "mine" / "inner").mkdir(parents=True)
    for name in ("mine_alone:build", "mine.inner:build", "json.decoder:loads", "pytest:main"):
        check_findable(name)
    for name in ("not_mine:build", "not_mine.inner:build"):
        with pytest.raises(UsageError, match="cannot import"):
            check_findable(name)


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
