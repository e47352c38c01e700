from __future__ import annotations

import io
import re

import pytest
import torch

from leakscope import progress
from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.attacks.idlg import idlg
from leakscope.client import share
from leakscope.observation.observe import observe
from leakscope.progress import count_steps, show_progress
from leakscope.testing import smallest_problem


def _seen():
    problem = smallest_problem()
    return observe(problem.model, share(problem.model, problem.batch), scenario="C", truth=problem.batch)


def test_lines_tell_step_and_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    attack = idlg(steps=2, retries=0)
    with show_progress() as shown, count_steps(shown, attack) as watch:
        attack.reconstruct(_seen(), 0, watch=watch)
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\[1/40\] distance \S+, \d+:\d\d:\d\d left", lines[0])


def test_watching_changes_nothing() -> None:
    seen, attack = _seen(), idlg(steps=2, retries=0)
    with show_progress(io.StringIO()) as shown, count_steps(shown, attack) as watch:
        watched = attack.reconstruct(seen, 0, watch=watch)
    assert torch.equal(watched.inputs, attack.reconstruct(seen, 0).inputs)


def test_a_closed_form_has_nothing_to_show() -> None:
    stream = io.StringIO()
    with show_progress(stream) as shown, count_steps(shown, fc_inversion()) as watch:
        assert watch is None
    assert stream.getvalue() == ""
