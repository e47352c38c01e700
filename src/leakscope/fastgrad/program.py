"""A compiled network: its shared gradients, and the gradient of anything computed from them.

Gradient matching minimises D(g(x)) with g(x) = ∇_W L(x; W). With v = ∂D/∂g,

    ∇ₓ D = ∇ₓ ⟨v, ∇_W L⟩ = d/dε ∇ₓ L(x; W + εv) at ε = 0,

so no second-order graph is needed: one pass forward and backward for g, a second for the
derivative along v. Where the weights themselves were moved by such gradients (`local_steps`), the second
also gives how the gradients change along v: a product with the Hessian.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from leakscope.fastgrad.layer import CompiledLayer, Memo
from leakscope.fastgrad.losses import LossRule

BackwardRule = Callable[[CompiledLayer, Memo, Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Instruction:
    """values[output] = layer(values[inputs]…); value 0 is the input of the network."""

    layer: CompiledLayer
    inputs: tuple[int, ...]
    output: int


@dataclass
class FirstPass:
    """The first pass for one set of inputs, with what the second needs of it."""

    gradients: dict[str, Tensor]
    inputs: Tensor = field(repr=False)
    logits: Tensor = field(repr=False)
    targets: Tensor = field(repr=False)
    residual: Tensor = field(repr=False)
    input_gradient: Tensor = field(repr=False)
    memos: list[Memo] = field(repr=False)

    @property
    def curved(self) -> bool:
        """Whether the change of the gradients can be asked for."""
        return self.memos[0].curved


@dataclass(frozen=True)
class Derivative:
    """d/dε at W + ε·direction: of the input gradient, of the logits, and of the gradients of a curved pass."""

    inputs: Tensor
    logits: Tensor
    gradients: dict[str, Tensor] = field(default_factory=dict)


class SecondPass(Protocol):
    """A way to the derivative along a direction in weight space."""

    keeps_activations: bool

    def run(self, program: Program, first: FirstPass, direction: Mapping[str, Tensor]) -> Derivative:
        """Return the derivative along `direction`."""
        ...

    def fresh(self) -> SecondPass:
        """Return one of the same kind that has learned nothing from earlier passes."""
        ...


@dataclass(frozen=True)
class Program:
    """What `compile_network` returns: instructions in order, and the two passes through them.

    `result` is the value that holds the logits; `names` are the parameters with gradients.
    Passes may be interleaved, but one program serves one thread at a time. The same sequence
    of calls gives the same bytes; in "differences" mode an earlier call may have set the step,
    which changes results within their stated accuracy.
    """

    instructions: tuple[Instruction, ...]
    result: int
    names: tuple[str, ...]
    loss: LossRule
    second: SecondPass

    @torch.no_grad()
    def logits(self, inputs: Tensor) -> Tensor:
        """The logits [n, K] of inputs [n, *input_shape]."""
        return self.run_forward(self.start_memos(groups=1), inputs)

    def at(self, offset: Mapping[str, Tensor]) -> Program:
        """The same network with parameters moved by `offset`, name → [G, *shape]; a missing name stays."""
        moved = (replace(each, layer=each.layer.at(offset)) for each in self.instructions)
        return replace(self, instructions=tuple(moved))

    @torch.no_grad()
    def gradients(self, inputs: Tensor, targets: Tensor, *, curved: bool = False) -> FirstPass:
        """Gradients of the mean loss of each group.

        Args:
            inputs: [G, n, *input_shape]; G groups share the network and nothing else.
            targets: [G, n] class indices or [G, n, K] probabilities.
            curved: whether `derive` shall find how they change; takes memory as large as they are.
        """
        memos = self.start_memos(groups=len(inputs), keep=self.second.keeps_activations, curved=curved)
        logits = self.run_forward(memos, inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])
        residual = self.loss.find_residual(logits, targets)
        input_gradient = self.run_backward(memos, residual.flatten(0, 1)).view(inputs.shape)
        found: dict[str, Tensor] = {}
        for instruction, memo in zip(self.instructions, memos, strict=True):
            found |= instruction.layer.take_gradients(memo)
            # Weights moved for this pass alone need not outlive it.
            memo.weights = None
        gradients = {name: found[name] for name in self.names}
        return FirstPass(gradients, inputs, logits, targets, residual, input_gradient, memos)

    @torch.no_grad()
    def pullback(self, first: FirstPass, direction: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Derivatives of Σ_G ⟨direction_G, gradients_G⟩ in the inputs and in soft targets.

        Args:
            first: what `gradients` returned.
            direction: name → [G, *shape]; a missing name stands for zero.
        """
        found = self.derive(first, direction)
        return found.inputs, self.pull_to_targets(first, found)

    @torch.no_grad()
    def derive(self, first: FirstPass, direction: Mapping[str, Tensor]) -> Derivative:
        """The derivative of a first pass along `direction`; of its gradients too, where it was a curved one."""
        if any(name in direction for name in self.names):
            return self.second.run(self, first, direction)
        return Derivative(torch.zeros_like(first.inputs), torch.zeros_like(first.logits))

    def pull_to_targets(self, first: FirstPass, found: Derivative) -> Tensor | None:
        """The derivative in soft targets; None where they are classes."""
        if not first.targets.is_floating_point():
            return None
        return self.loss.pull_to_targets(first.logits, first.targets, change=found.logits)

    def run_forward(self, memos: list[Memo], inputs: Tensor) -> Tensor:
        """Logits of inputs [N, …]."""
        values = {0: inputs}
        for place, (instruction, memo) in enumerate(zip(self.instructions, memos, strict=True)):
            read = (values[value] for value in instruction.inputs)
            values[instruction.output] = instruction.layer.forward(memo, *read)
            self._forget(values, place)
        return values[self.result]

    def run_backward(self, memos: list[Memo], grad: Tensor) -> Tensor:
        """The cotangent of the inputs from that of the logits."""
        return self._walk_back(memos, grad, rule=lambda layer, memo, upstream: layer.backward(memo, upstream))

    def push(self, memos: list[Memo]) -> Tensor:
        """The tangent of the logits from the changes of the weights in the memos."""
        values: dict[int, Tensor | None] = {0: None}
        for place, (instruction, memo) in enumerate(zip(self.instructions, memos, strict=True)):
            read = (values[value] for value in instruction.inputs)
            values[instruction.output] = instruction.layer.push(memo, *read)
            self._forget(values, place)
        found = values[self.result]
        if found is None:
            raise RuntimeError("no change of the weights reaches the logits")
        return found

    def pull(self, memos: list[Memo], change: Tensor) -> Tensor:
        """The tangent of `run_backward` from the tangent of the logits' cotangent."""
        return self._walk_back(memos, change, rule=lambda layer, memo, upstream: layer.pull(memo, upstream))

    @cached_property
    def last_reads(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction, the values nobody reads after it."""
        last = {value: place for place, step in enumerate(self.instructions) for value in step.inputs}
        last.pop(self.result, None)
        return tuple(tuple(v for v, at in last.items() if at == place) for place in range(len(self.instructions)))

    def start_memos(self, *, groups: int, first: bool = True, keep: bool = False, curved: bool = False) -> list[Memo]:
        """Memos for a pass through all layers; of one that is not a first one no gradients are recorded."""
        layers = (instruction.layer for instruction in self.instructions)
        return [Memo(groups, first=first, keep=keep, curved=curved, weights=layer.prepared) for layer in layers]

    def _walk_back(self, memos: list[Memo], grad: Tensor, *, rule: BackwardRule) -> Tensor:
        grads = {self.result: grad}
        for instruction, memo in zip(reversed(self.instructions), reversed(memos), strict=True):
            upstream = grads.pop(instruction.output, None)
            if upstream is None:
                continue
            for value, part in zip(instruction.inputs, rule(instruction.layer, memo, upstream), strict=True):
                grads[value] = grads[value] + part if value in grads else part
        return grads[0]

    def _forget(self, values: dict[int, Any], place: int) -> None:
        for value in self.last_reads[place]:
            del values[value]
