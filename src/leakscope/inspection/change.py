"""The model against the one of the round before, and its loss on the client's own examples."""

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
    """How far weights moved since the last round, how much the loss rose, and how far it is above guessing.

    `jump` is ‖w − w₀‖/‖w₀‖ of the tensor that moved most, `loss_rise` the loss on the client's own batch minus that of
    the last round's model, `loss_over_guess` the loss over ln(classes).
    """

    name = "round-change"
    severity = Severity.WARNING
    meaning = (
        "The model is not the last one plus an average of updates: its weights were replaced, or it answers your own "
        "examples far worse than before, or than a guess would. Crafted weights forget what was learnt."
    )
    advice = "Ask the server why: a restart or a new schedule may explain it. Do not train until it is explained."

    def lacks(self, received: Received) -> str:
        """The last round, or examples to compute the loss with."""
        return "" if received.previous is not None or received.can_run else "the model of the last round, or examples"

    def measure(self, received: Received) -> list[Measured]:
        """What can be measured with what is there."""
        found = [] if received.previous is None else _jumps(received)
        if received.can_run:
            now, outputs = received.loss_now, received.scores.shape[-1]
            if outputs > 1:
                found.append(
                    Measured("loss_over_guess", min(LARGEST, now / math.log(outputs)), detail=f"loss {now:.3g}")
                )
            if received.earlier is not None:
                before = received.loss_before
                found.append(Measured("loss_rise", min(LARGEST, now - before), detail=f"{before:.3g} to {now:.3g}"))
        return found


def _jumps(received: Received) -> list[Measured]:
    before = received.previous or {}
    layers = [name for name, value in received.tensors.items() if value.ndim > 1 and value.is_floating_point()]
    known = [name for name in layers if name in before and before[name].shape == received.tensors[name].shape]
    return [Measured("jump", relative_change(before[name], received.tensors[name]), name) for name in known]


def relative_change(before: Tensor, after: Tensor) -> float:
    """‖after − before‖ / ‖before‖; a layer that was zero has not jumped, it has begun."""
    length = float(torch.linalg.vector_norm(before.float()))
    moved = float(torch.linalg.vector_norm(after.float() - before.float()))
    return 0.0 if length == 0 else min(LARGEST, moved / length)
