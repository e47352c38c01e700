"""The derivative of the input gradient along a direction in weight space: exact, or by differences.

"tangents" is exact: forward-mode rules of each layer, 4 forward costs. "differences" is a quotient,
2 forward costs, in which every mask and argmax stays as in the first pass. Without that, a step
crosses kinks and differences are useless; with it, they are good to a few 1e-3 in float32 (cosine
0.99999 with the exact one).

How far do the weights move in a quotient? A short step drowns in rounding, a long one in curvature.
What tells them apart is how far the *result* moves: with rounding noise η the best step moves the
input gradient by a few √η of itself, on every network tried (trained or not, far from the truth or
near it). How far the weights must move for that differs a hundredfold between networks and hardly
during an attack, so the ratio is measured on the first use and again whenever a result leaves the
window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.fastgrad.layer import Memo
from leakscope.fastgrad.program import Derivative, FirstPass, Program
from leakscope.fastgrad.weights import Weights

# In units of √(machine epsilon): where the error of a quotient was smallest, measured; and
# by which factor a result may miss that before the step is corrected.
BEST = 7.0
WINDOW = 1.7


class Tangents:
    """Push the change of the weights forward, then pull its effect back."""

    keeps_activations = True

    def run(self, program: Program, first: FirstPass, direction: Mapping[str, Tensor]) -> Derivative:
        """Return the derivative along `direction`."""
        for instruction, memo in zip(program.instructions, first.memos, strict=True):
            memo.weights = instruction.layer.prepared
            memo.change = instruction.layer.change_weights(direction, memo.groups)
        moved = program.push(first.memos).view(first.logits.shape)
        change = program.loss.push_residual(first.logits, first.targets, change=moved)
        to_inputs = program.pull(first.memos, change.flatten(0, 1)).view(first.inputs.shape)
        gradients = _take_changes(program, first, direction)
        for memo in first.memos:
            memo.change = memo.tangent = memo.weights = None
        return Derivative(to_inputs, moved, gradients)

    def fresh(self) -> Tangents:
        """Itself: it learns nothing."""
        return self


class Differences:
    """Run the first pass again with weights moved by a small step, patterns unmoved."""

    keeps_activations = False

    def __init__(self) -> None:
        self._step = StepSize()

    def run(self, program: Program, first: FirstPass, direction: Mapping[str, Tensor]) -> Derivative:
        """Return the quotients along `direction`."""
        movement = measure_movement(program, direction)
        sizes = self._step.choose(movement)
        moved = _run_moved(program, first, direction, sizes=sizes)
        if not self._step.suits(first.input_gradient, moved.inputs):
            sizes = self._step.choose(movement)
            moved = _run_moved(program, first, direction, sizes=sizes)
        if first.curved:
            for memo, second in zip(first.memos, moved.memos, strict=True):
                memo.gradient_change = _quotient(second.gradient, memo.gradient, sizes)
        return Derivative(
            _divide(moved.inputs - first.input_gradient, sizes),
            _divide(moved.logits - first.logits, sizes),
            _take_changes(program, first, direction),
        )

    def fresh(self) -> Differences:
        """Return one whose step is not yet fitted."""
        return Differences()


class StepSize:
    """The ratio of step to relative movement of the weights that suits one network."""

    def __init__(self) -> None:
        self._ratio = 0.6

    def choose(self, movement: Tensor) -> Tensor:
        """Step sizes [G, 1] for a direction along which the weights move by `movement`."""
        limits = torch.finfo(movement.dtype)
        return self._ratio * limits.eps**0.5 / movement.clamp_min(limits.tiny)

    def suits(self, before: Tensor, after: Tensor) -> bool:
        """Whether the result [G, …] moved as far as it should; if not, correct the ratio."""
        moved, size = ((value.double().flatten(1).norm(dim=1)) for value in (after - before, before))
        units = float((moved / size).log().mean().exp()) / torch.finfo(before.dtype).eps ** 0.5
        # A result that is zero, infinite or did not move at all says nothing about the step.
        if not 0 < units < float("inf") or BEST / WINDOW < units < BEST * WINDOW:
            return True
        self._ratio *= BEST / units
        return False


def measure_movement(program: Program, direction: Mapping[str, Tensor]) -> Tensor:
    """Relative movement of all weights along `direction`, for each group [G, 1].

    Root of Σ ‖v‖²/‖w‖², over the first parameter of each layer that moves.
    """
    squares: list[Tensor] = []
    for instruction in program.instructions:
        parts = instruction.layer.parameters
        moving = [(part, direction[part.name]) for part in parts if part.name and part.name in direction]
        for part, change in moving[:1]:
            least = torch.finfo(change.dtype).tiny
            squares.append((torch.linalg.vector_norm(change.flatten(1), dim=1) / part.size.clamp_min(least)).square())
    return torch.stack(squares).sum(0).sqrt().unsqueeze(1)


@dataclass(frozen=True)
class MovedPass:
    """Input gradient and logits at moved weights, and the memos with the gradients of a curved pass."""

    inputs: Tensor
    logits: Tensor
    memos: list[Memo]


def _run_moved(program: Program, first: FirstPass, direction: Mapping[str, Tensor], *, sizes: Tensor) -> MovedPass:
    """The network with the weights moved by `sizes` along `direction`."""
    memos = [
        memo.again(instruction.layer.move_weights(direction, sizes))
        for instruction, memo in zip(program.instructions, first.memos, strict=True)
    ]
    logits = program.run_forward(memos, first.inputs.flatten(0, 1)).view(first.logits.shape)
    change = program.loss.push_residual(first.logits, first.targets, change=logits - first.logits)
    to_inputs = program.run_backward(memos, (first.residual + change).flatten(0, 1))
    return MovedPass(to_inputs.view(first.inputs.shape), logits, memos)


def _take_changes(program: Program, first: FirstPass, direction: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """How the gradients of a curved pass change along `direction`; nothing of any other."""
    found: dict[str, Tensor] = {}
    for instruction, memo in zip(program.instructions, first.memos, strict=True):
        found |= instruction.layer.take_changes(memo, direction) if first.curved else {}
    return found


def _quotient(after: Weights | None, before: Weights | None, sizes: Tensor) -> Weights | None:
    if after is None or before is None:
        return None
    pairs = ((after.weight, before.weight), (after.bias, before.bias))
    parts = [None if left is None or right is None else _divide(left - right, sizes) for left, right in pairs]
    return Weights(parts[0], parts[1], shared=False)


def _divide(difference: Tensor, sizes: Tensor) -> Tensor:
    return difference / sizes.view(-1, *(1,) * (difference.ndim - 1))
