"""The model against the one of the round before: its weights, and its loss on the client's own examples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import LARGEST, Measured, Severity
from leakscope.inspection.received import Received


@dataclass(frozen=True)
class RoundChange(Detector):
    """How far weights moved since the last round, and how much the loss on the client's own examples rose.

    `jump` is ‖w − w₀‖/‖w₀‖ of the layer that moved most, `loss_rise` the loss minus that of the last round's model,
    over ℓ(0)·(1 + m/ln C): the loss of a guess, and what scores of their size m cost where they say nothing. A network
    that was pruned or got a fresh head may have forgotten everything, and one with large weights is then wrong by
    hundreds of nats, but by no more than the extremes of its own scores: normal ones of C = 1000 classes by less than
    five such units. A head in which one class shouts is wrong by more, since m is a median.
    """

    name = "round-change"
    severity = Severity.WARNING
    meaning = (
        "The model is not the last one plus an average of updates: its weights were replaced, or it answers your own "
        "examples worse than a model can that has only forgotten. Crafted weights do both."
    )
    advice = "Ask the server why: a restart or a new schedule may explain it. Do not train until it is explained."

    def lacks(self, received: Received) -> str:
        """The last round."""
        return "" if received.previous is not None else "the model of the last round"

    def measure(self, received: Received) -> list[Measured]:
        """The jumps, and the rise where the loss of both models can be computed."""
        found = _jumps(received)
        if received.can_run and received.earlier is not None:
            before, now = received.loss_before, received.loss_now
            rise = (now - before) / loss_unit(received)
            found.append(Measured("loss_rise", rise, detail=f"{before:.3g} to {now:.3g}"))
        return found


def loss_unit(received: Received) -> float:
    """ℓ(0)·(1 + m/ln C): what scores of the size m of the network's cost where they have nothing to do with targets.

    m is the median distance of a score from the middle of its example's, so that one class alone does not make it.
    """
    assert received.batch is not None
    scores = received.scores
    classes = scores.shape[-1]
    # Between the two middle ones of an even number; one logit stands for itself and a zero.
    middle = (scores.median(-1, keepdim=True).values - (-scores).median(-1, keepdim=True).values) / 2
    size = float((scores - (middle if classes > 1 else scores / 2)).abs().median())
    guess = float(received.task.loss(torch.zeros_like(scores), received.batch.targets))
    return max(guess, 1e-30) * (1 + size / math.log(max(2, classes)))


def _jumps(received: Received) -> list[Measured]:
    before = received.previous or {}
    # Layers that multiply: tokens and codes of positions, which are added, start next to nothing and go far.
    layers = [layer.name for layer in received.layers]
    known = [name for name in layers if name in before and before[name].shape == received.tensors[name].shape]
    return [Measured("jump", relative_change(before[name], received.tensors[name]), name) for name in known]


def relative_change(before: Tensor, after: Tensor) -> float:
    """‖after − before‖ / ‖before‖; a layer that was zero has not jumped, it has begun."""
    length = float(torch.linalg.vector_norm(before.float()))
    moved = float(torch.linalg.vector_norm(after.float() - before.float()))
    return 0.0 if length == 0 else min(LARGEST, moved / length)
