"""How much longer a client step takes under a defence: steps in turn, the median of their ratios."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from leakscope.defence import ClientHooks
from leakscope.defences.prune import prune
from leakscope.federated import StepRatio, measure_utility, training
from leakscope.federated.rounds import Meter
from leakscope.types import Batch

REAL = training.client_update


def _measure(defence: Any) -> StepRatio:
    torch.manual_seed(0)
    batch = Batch(torch.rand(8, 1, 2, 2), torch.arange(8) % 2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    found = measure_utility(model, batch, batch, defence=defence, clients=2, rounds=2, batch_size=4).step_ratio
    assert found is not None
    return found


def test_one_disturbed_step_does_not_move_the_median() -> None:
    found = StepRatio.of([1.1, 1.2, 1.0, 4.16, 1.1])
    assert (found.median, found.low, found.high, found.pairs) == (1.1, 1.1, 1.2, 5)


def test_a_machine_that_slows_down_does_not_look_like_an_expensive_defence(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []

    def timed(model: nn.Module, batch: Batch, *, step: Any, rng: Any, meter: Meter, **others: Any) -> Any:
        update = REAL(model, batch, step=step, rng=rng, meter=Meter())
        defended = step.hooks != ClientHooks()
        calls.append(defended)
        # Twice as long under the defence, on a machine that gets slower all the time and halts once.
        meter.seconds.append((2.0 if defended else 1.0) * 1.05 ** len(calls) + (50 if len(calls) == 9 else 0))
        meter.nonzero.append(1.0)
        meter.bytes_sent.append(1)
        return update

    monkeypatch.setattr(training, "client_update", timed)
    found = _measure(prune(fraction=0.5))
    turns = calls[4:]
    assert len(turns) == 2 * (training.TIMED_PAIRS + 1)
    assert all(turns[place] != turns[place + 1] for place in range(0, len(turns), 2)), "in turn"
    assert {turns[0], turns[2]} == {True, False}, "each is first in turn"
    assert found.median == pytest.approx(2.0, rel=0.1)
    assert found.low <= found.median <= found.high
    assert found.pairs == training.TIMED_PAIRS


def test_no_defence_takes_as_long_as_no_defence() -> None:
    assert _measure(None) == StepRatio(1.0, 1.0, 1.0, pairs=0)


def test_a_real_defence_has_a_finite_ratio_and_a_spread() -> None:
    found = _measure(prune(fraction=0.5))
    assert 0 < found.low <= found.median <= found.high < float("inf")
