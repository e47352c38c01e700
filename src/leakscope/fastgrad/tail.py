"""A network of which only the last layers are compared: its first layers run forward once and back once.

Let h be what the first layers (the head) hand to the last ones (the tail). Where only gradients of the tail are
compared, v = ∂D/∂g moves no weight of the head: h and the head's masks stay as they are, and so

    ∇ₓ D = d/dε ∇ₓ L(x; W + εv) = Jᵀ · d/dε ∂L/∂h,        J = ∂h/∂x.

The second factor is the tail's own second pass; the head neither finds gradients of its weights nor runs twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from leakscope.fastgrad.layer import Memo
from leakscope.fastgrad.program import FirstPass, Instruction, Program


@dataclass(frozen=True)
class Split:
    """The instructions of a network in two parts; `value` is what the first hands on, the second calls it 0."""

    head: list[Instruction]
    tail: list[Instruction]
    value: int


@dataclass
class TailPass:
    """The first pass of the tail, and what the head left behind for the way back."""

    tail: FirstPass
    inputs: Tensor = field(repr=False)
    memos: list[Memo] = field(repr=False)

    @property
    def gradients(self) -> dict[str, Tensor]:
        """The gradients that are compared."""
        return self.tail.gradients


@dataclass(frozen=True)
class TailProgram:
    """A compiled network whose head is not compared; used as a `Program` is."""

    head: Program
    tail: Program

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters of the tail with gradients."""
        return self.tail.names

    @torch.no_grad()
    def logits(self, inputs: Tensor) -> Tensor:
        """The logits [n, K] of inputs [n, *input_shape]."""
        return self.tail.logits(self.head.logits(inputs))

    @torch.no_grad()
    def gradients(self, inputs: Tensor, targets: Tensor) -> TailPass:
        """Gradients of the mean loss of each group in the tail's weights; arguments as of `Program.gradients`."""
        memos = self.head.start_memos(groups=len(inputs), first=False)
        handed_on = self.head.run_forward(memos, inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])
        return TailPass(self.tail.gradients(handed_on, targets), inputs, memos)

    @torch.no_grad()
    def pullback(self, first: TailPass, direction: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Derivatives of Σ_G ⟨direction_G, gradients_G⟩ in the inputs and in soft targets."""
        at_cut, by_target = self.tail.pullback(first.tail, direction)
        return self.head.run_backward(first.memos, at_cut.flatten(0, 1)).view(first.inputs.shape), by_target


def split_before(instructions: Sequence[Instruction], wanted: Collection[str]) -> Split | None:
    """Cut as late as possible: no wanted parameter in the head, and a single value goes from it to the tail.

    None where there is nothing to cut off.
    """
    first = next((place for place, one in enumerate(instructions) if _has(one, wanted)), 0)
    for place in range(first, 0, -1):
        crossing = _find_crossing(instructions, place)
        # Value 0 would cross alone only where the instructions before it lead nowhere.
        if len(crossing) == 1 and crossing != {0}:
            (value,) = crossing
            return Split(list(instructions[:place]), [_read_zero(one, value) for one in instructions[place:]], value)
    return None


def _read_zero(instruction: Instruction, value: int) -> Instruction:
    """The instruction with `value` called 0, as the input of a program is."""
    return replace(instruction, inputs=tuple(0 if one == value else one for one in instruction.inputs))


def _has(instruction: Instruction, wanted: Collection[str]) -> bool:
    return any(part.name in wanted for part in instruction.layer.parameters if part.name)


def _find_crossing(instructions: Sequence[Instruction], place: int) -> set[int]:
    """The values made before `place` that are read from there on."""
    made = {one.output for one in instructions[place:]}
    return {value for one in instructions[place:] for value in one.inputs if value not in made}
