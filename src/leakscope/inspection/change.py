"""The model against the one of the round before: its weights, and its loss on the client's own examples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import LARGEST, Measured, Severity
from leakscope.inspection.received import Received


@dataclass(frozen=True)
class RoundChange(Detector):
    """How far weights moved since the last round, and how much the loss on the client's own examples rose.

    `jump` is ‖w − w₀‖/‖w₀‖ of the tensor that moved most, `loss_rise` the loss minus that of the last round's model. A
    high loss by itself is no sign: honest networks with large first weights begin at thousands of times ln(classes).
    """

    name = "round-change"
    severity = Severity.WARNING
    meaning = (
        "The model is not the last one plus an average of updates: its weights were replaced, or it answers your own "
        "examples far worse than before. Crafted weights forget what was learnt."
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
            found.append(Measured("loss_rise", now - before, detail=f"{before:.3g} to {now:.3g}"))
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
