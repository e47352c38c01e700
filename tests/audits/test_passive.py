"""What an honest server could take within a budget."""

from __future__ import annotations

import pytest

from leakscope.audits.passive import measure_passive_risk
from leakscope.errors import UsageError
from leakscope.types import Status
from tiny import batch_of, convolutional, dense


def test_a_closed_form_runs_in_any_time_and_the_worst_comes_first():
    found = measure_passive_risk(dense(), batch_of([1]), seconds=0.01)
    assert found.worst is not None
    assert (found.worst.attack, found.worst.grade, found.worst.status) == ("fc-inversion", "F", Status.OK)
    assert found.worst.psnr is not None
    assert found.worst.psnr > 60
    assert found.worst.is_recognisable
    short = next(one for one in found.rebuilt if one.attack == "inverting-gradients")
    assert short.status is not Status.OK
    assert not found.is_evidence


def test_an_attack_that_does_not_work_here_is_named():
    found = measure_passive_risk(convolutional(), batch_of([1]), seconds=0.01, attacks=["fc-inversion"])
    assert (found.worst, found.is_evidence) == (None, False)
    assert [name for name, _ in found.refused] == ["fc-inversion"]


def test_steps_follow_the_time(monkeypatch):
    from leakscope.audits import passive

    steps = []
    real = passive.run_cell
    monkeypatch.setattr(passive, "run_cell", lambda *a, **k: (steps.append(a[2].effort.steps), real(*a, **k))[1])
    measure_passive_risk(dense(), batch_of([1]), seconds=30, attacks=["inverting-gradients:steps=12"])
    assert steps == [4, 12]
    steps.clear()
    measure_passive_risk(dense(), batch_of([1]), seconds=1e-6, attacks=["inverting-gradients:steps=12"])
    assert steps == [4, 4]


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_no_time_is_refused(seconds):
    with pytest.raises(UsageError, match="no time"):
        measure_passive_risk(dense(), batch_of([1]), seconds=seconds)
