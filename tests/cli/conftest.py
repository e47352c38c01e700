from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from leakscope.cli import main


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run `leakscope …` in this process: (exit code, standard output, standard error)."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["leakscope", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        code = stop.value.code
        out, err = capsys.readouterr()
        return (code if isinstance(code, int) else 0), out, err

    return run
