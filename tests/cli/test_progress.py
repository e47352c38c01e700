from __future__ import annotations

import pytest
import torch

from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.attacks.idlg import idlg
from leakscope.cli import progress
from leakscope.client import share
from leakscope.testing import smallest_problem
from leakscope.threat import observe


def _seen():
    problem = smallest_problem()
    return observe(problem.model, share(problem.model, problem.batch), scenario="C", truth=problem.batch)


def test_lines_tell_step_and_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY", 0.0)
    with progress.watching(idlg(steps=2, retries=0)) as run:
        run(_seen(), 0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("[1/40] distance ")
    assert lines[0].endswith("s left")


def test_watching_changes_nothing() -> None:
    seen = _seen()
    with progress.watching(idlg(steps=2, retries=0)) as run:
        watched = run(seen, 0)
    assert torch.equal(watched.inputs, idlg(steps=2, retries=0).reconstruct(seen, 0).inputs)


def test_a_closed_form_has_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.watching(fc_inversion()) as run:
        run(_seen(), 0)
    assert capsys.readouterr().err == ""
