"""A compiled network: its shared gradients, and the gradient of anything computed from them.

Gradient matching minimises D(g(x)) with g(x) = ∇_W L(x; W). With v = ∂D/∂g,

    ∇ₓ D = ∇ₓ ⟨v, ∇_W L⟩ = d/dε ∇ₓ L(x; W + εv) at ε = 0,

so no second-order graph is needed: one pass forward and backward for g, a second for the
derivative along v. The second pass is exact ("tangents": forward-mode rules of each layer,
4 forward costs) or a difference quotient ("differences": 2 forward costs) in which every mask
and argmax stays as in the first pass. Without that, a step crosses kinks and differences are
useless; with it, they are good to a few 1e-3 in float32 (cosine 0.99999 with the exact one).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from leakscope.errors import UsageError
from leakscope.fastgrad.compile import Plan, plan
from leakscope.fastgrad.layer import Weighted
from leakscope.fastgrad.losses import Head, head_for
from leakscope.fastgrad.op import Memo, Op, Weights
from leakscope.fastgrad.second_pass import StepSize
from leakscope.fastgrad.unsupported import Unsupported
from leakscope.types import Loss

Mode = Literal["differences", "tangents"]

# Just below the largest threshold glibc adopts by itself (32 MiB).
LARGEST_HEAP_BLOCK = 32 * 2**20 - 8192


@dataclass
class Pass:
    """The first pass for one set of inputs, with what the second needs of it."""

    gradients: dict[str, Tensor]
    inputs: Tensor = field(repr=False)
    logits: Tensor = field(repr=False)
    targets: Tensor = field(repr=False)
    residual: Tensor = field(repr=False)
    input_gradient: Tensor = field(repr=False)
    memos: list[Memo] = field(repr=False)


class Network:
    """What `compile_network` returns: constants, scratch memory, and the step that suits it.

    Passes may be interleaved, but one network serves one thread at a time. The same sequence
    of calls gives the same bytes; in "differences" mode an earlier call may have set the step,
    which changes results within their stated accuracy.
    """

    def __init__(self, plan: Plan, *, head: Head, mode: Mode) -> None:
        self.names = plan.names
        self._plan = plan
        self._head = head
        self._mode: Mode = mode
        self._step = StepSize()

    @torch.no_grad()
    def logits(self, inputs: Tensor) -> Tensor:
        """The logits [n, K] of inputs [n, *input_shape]."""
        return self._plan.forward([Memo(1, weights=_prepared(step.op)) for step in self._plan.steps], inputs)

    @torch.no_grad()
    def gradients(self, inputs: Tensor, targets: Tensor) -> Pass:
        """Gradients of the mean loss of each group.

        Args:
            inputs: [G, n, *input_shape]; G groups share the network and nothing else.
            targets: [G, n] class indices or [G, n, K] probabilities.
        """
        groups, keep = len(inputs), self._mode == "tangents"
        memos = [Memo(groups, keep=keep, weights=_prepared(step.op)) for step in self._plan.steps]
        logits = self._plan.forward(memos, inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])
        residual = self._head.residual(logits, targets)
        input_gradient = self._plan.backward(memos, residual.flatten(0, 1)).view(inputs.shape)
        found: dict[str, Tensor] = {}
        for step, memo in zip(self._plan.steps, memos, strict=True):
            if isinstance(step.op, Weighted) and memo.gradient is not None:
                found |= step.op.folded.split(memo.gradient)
                memo.gradient = None
        return Pass(
            {name: found[name] for name in self.names}, inputs, logits, targets, residual, input_gradient, memos
        )

    @torch.no_grad()
    def pullback(self, first: Pass, direction: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Derivatives of Σ_G ⟨direction_G, gradients_G⟩ in the inputs and in soft targets.

        Args:
            first: what `gradients` returned.
            direction: name → [G, *shape]; a missing name stands for zero.
        """
        if not any(name in direction for name in self.names):
            to_inputs, moved = torch.zeros_like(first.inputs), torch.zeros_like(first.logits)
        elif self._mode == "tangents":
            to_inputs, moved = self._tangents(first, direction)
        else:
            to_inputs, moved = self._differences(first, direction)
        if not first.targets.is_floating_point():
            return to_inputs, None
        return to_inputs, self._head.to_targets(first.logits, first.targets, change=moved)

    def _tangents(self, first: Pass, direction: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Exact: push the change of the weights forward, then pull its effect back."""
        for step, memo in zip(self._plan.steps, first.memos, strict=True):
            if isinstance(step.op, Weighted):
                change = step.op.folded.merge(direction, memo.groups)
                memo.change = None if change is None else step.op.prepare(_shared_if_alone(change), reuse=True)
        moved = self._plan.push(first.memos).view(first.logits.shape)
        curve = self._head.curve(first.logits, first.targets, change=moved)
        to_inputs = self._plan.pull(first.memos, curve.flatten(0, 1)).view(first.inputs.shape)
        for memo in first.memos:
            memo.change = memo.tangent = None
        return to_inputs, moved

    def _differences(self, first: Pass, direction: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The first pass again with weights moved by a small step, patterns unmoved."""
        movement = self._plan.movement(direction)
        sizes = self._step.sizes(movement)
        to_inputs, logits = self._again(first, direction, sizes)
        if not self._step.suits(first.input_gradient, to_inputs):
            sizes = self._step.sizes(movement)
            to_inputs, logits = self._again(first, direction, sizes)
        return _quotient(to_inputs, first.input_gradient, sizes), _quotient(logits, first.logits, sizes)

    def _again(self, first: Pass, direction: Mapping[str, Tensor], sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Input gradient and logits with the weights moved by `sizes` along `direction`."""
        memos = [
            memo.again(_moved(step.op, direction, sizes))
            for step, memo in zip(self._plan.steps, first.memos, strict=True)
        ]
        logits = self._plan.forward(memos, first.inputs.flatten(0, 1)).view(first.logits.shape)
        curve = self._head.curve(first.logits, first.targets, change=logits - first.logits)
        to_inputs = self._plan.backward(memos, (first.residual + curve).flatten(0, 1))
        return to_inputs.view(first.inputs.shape), logits


def compile_network(model: nn.Module, *, loss: Loss, example: Tensor, mode: Mode = "differences") -> Network:
    """Compile `model` for gradient matching; the model is read once and never changed.

    Args:
        model: in evaluation mode, made of the layers that `translate` lists.
        loss: mean cross-entropy in closed form, or any loss(logits, targets) → scalar.
        example: inputs of one group, [n, *input_shape]; its values do not matter.
        mode: "differences" (faster, within a few 1e-3 in float32) or "tangents" (exact).

    Raises:
        Unsupported: some part of the network has no rule; the message names it.
    """
    if mode not in ("differences", "tangents"):
        raise UsageError(f"mode must be 'differences' or 'tangents', got {mode!r}")
    _keep_freed_memory(example)
    with torch.no_grad():
        network = Network(plan(model, example), head=head_for(loss), mode=mode)
        expected = model(example.clone())
        found = network.logits(example)
    scale = expected.abs().max().clamp_min(torch.finfo(expected.dtype).tiny)
    if found.shape != expected.shape or not bool((found - expected).abs().max() <= 1e-3 * scale):
        raise Unsupported("the compiled network does not reproduce the logits of the model")
    return network


def _prepared(op: Op) -> Weights | None:
    return op.prepared if isinstance(op, Weighted) else None


def _moved(op: Op, direction: Mapping[str, Tensor], sizes: Tensor) -> Weights | None:
    """Weights after one step along `direction`, each group with its own step size."""
    if not isinstance(op, Weighted) or not any(name in direction for name in op.folded.names):
        return _prepared(op)
    return op.prepare(_shared_if_alone(op.folded.moved(direction, sizes)), reuse=True)


def _shared_if_alone(weights: Weights) -> Weights:
    """One group needs no group axis, and shared weights take the faster products."""
    if weights.weight is None or len(weights.weight) > 1:
        return weights
    return Weights(weights.weight[0], None if weights.bias is None else weights.bias[0])


def _quotient(after: Tensor, before: Tensor, sizes: Tensor) -> Tensor:
    return (after - before) / sizes.view(-1, *(1,) * (after.ndim - 1))


def _keep_freed_memory(like: Tensor) -> None:
    """Take and free one large block, without writing to it.

    glibc then raises the size above which it hands memory back to the kernel. Without this a
    fifth of an evaluation is spent on page faults for buffers that were freed a moment before.
    """
    torch.empty(LARGEST_HEAP_BLOCK, dtype=torch.uint8, device=like.device)
