"""The local loop: a gradient rule and an optimiser, step after step over an explicit order of the examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from leakscope.client.gradient import replay_gradient
from leakscope.client.optimisers import Memory, advance
from leakscope.errors import UsageError
from leakscope.tasks import Task
from leakscope.tensors import map_tensors, subtract
from leakscope.types import LocalTraining, Loss, Tensors

if TYPE_CHECKING:
    from leakscope.local_training import Order

# Takes the weights, the number of the step, and the positions of its examples.
GradientRule = Callable[[dict[str, Tensor], int, tuple[int, ...]], dict[str, Tensor]]


def train(
    parameters: Tensors, rule: GradientRule, *, local: LocalTraining, order: Order, create_graph: bool
) -> dict[str, Tensor]:
    """W_T − W_0 after one step per entry of `order`; with `create_graph` differentiable in what `rule` is."""
    current, memory = dict(parameters), Memory()
    for step, factor in enumerate(local.rate_factors(len(order))):
        gradients = rule(current, step, order[step])
        with torch.set_grad_enabled(create_graph):
            current, memory = advance(local, current, gradients, memory=memory, rate=local.lr * factor)
        if not create_graph:
            current = map_tensors(lambda value: value.detach().requires_grad_(), current)
    return subtract(current, parameters)


def replay_local(
    model: nn.Module,
    parameters: Tensors,
    inputs: Tensor,
    targets: Tensor,
    *,
    local: LocalTraining,
    loss: Loss,
    task: Task | None = None,
    create_graph: bool = True,
    order: Order | None = None,
) -> dict[str, Tensor]:
    """W_T − W_0 of local training on `inputs` and `targets`, differentiable in them.

    `order` is that of the client where it is known; else the order of the examples stands for it.
    Through Adam the derivative is very steep where a gradient is near 0: its first step is nearly its sign.
    """
    positions = order or local.order(len(inputs))
    if max(max(step) for step in positions) >= len(inputs):
        raise UsageError(f"the order of local steps speaks of more than the {len(inputs)} examples there are")

    def rule(current: dict[str, Tensor], step: int, chosen: tuple[int, ...]) -> dict[str, Tensor]:
        rows = list(chosen)
        return replay_gradient(
            model, current, inputs[rows], targets[rows], loss=loss, task=task, create_graph=create_graph
        )

    return train(parameters, rule, local=local, order=positions, create_graph=create_graph)
