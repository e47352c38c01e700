"""The local loop: a gradient rule and an optimiser, step after step over an explicit order of the examples.

The optimisers compute what `torch.optim` does, as functions that are differentiable in the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from leakscope.counts import MOST_SIMULATED_STEPS
from leakscope.errors import UnsuitableError, UsageError
from leakscope.networks import take_examples
from leakscope.steps.gradient import replay_gradient
from leakscope.tasks import Task
from leakscope.tensors import map_tensors, subtract, zip_tensors
from leakscope.types import LocalTraining, Loss, Tensors

if TYPE_CHECKING:
    from leakscope.local_training import Order

_SAMPLED_STEPS = 2
# Nodes of the graph of one step of a small network, measured.
_GRAPH_BYTES = 32_768

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
    given: Tensors | None = None,
) -> dict[str, Tensor]:
    """W_T − W_0 of local training on `inputs` and `targets`, differentiable in them.

    `order` is that of the client where it is known; else the order of the examples stands for it.
    Through Adam the derivative is very steep where a gradient is near 0: its first step is nearly its sign.
    `given` takes the place of buffers, the same in all steps; what has a row for every example follows the examples.
    """
    positions = order or local.order(len(inputs))
    check_order(positions, len(inputs))

    def rule(current: dict[str, Tensor], step: int, chosen: tuple[int, ...]) -> dict[str, Tensor]:
        rows = list(chosen)
        return replay_gradient(
            model,
            current,
            inputs[rows],
            targets[rows],
            loss=loss,
            task=task,
            create_graph=create_graph,
            given=take_examples(model, given, rows) if given else None,
        )

    return train(parameters, rule, local=local, order=positions, create_graph=create_graph)


def check_order(order: Order, examples: int) -> None:
    """Refuse more steps than can be simulated, and steps on other than these examples."""
    if len(order) > MOST_SIMULATED_STEPS:
        raise UnsuitableError(
            f"{len(order):,} local steps cannot be simulated for each prediction, at most {MOST_SIMULATED_STEPS:,} "
            "can; correct the number of steps, or use an attack that compares one gradient, such as agic"
        )
    if max(max(step) for step in order) >= examples:
        raise UsageError(f"the order of local steps speaks of more than the {examples} examples there are")


def measure_step_bytes(predict_steps: Callable[[int], dict[str, Tensor]]) -> int:
    """Memory that the derivative keeps of one simulated local step; `predict_steps(n)` simulates n of them."""
    storages: dict[int, int] = {}

    def note(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return saved

    with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        change = predict_steps(_SAMPLED_STEPS)
    # Gradients and new weights are not saved, but live as long.
    weights = sum(value.numel() * value.element_size() for value in change.values())
    return sum(storages.values()) // _SAMPLED_STEPS + weights + _GRAPH_BYTES


@dataclass(frozen=True)
class Memory:
    """What an optimiser keeps from one step to the next.

    Attributes:
        step: steps done.
        first: momentum, or Adam's first moment.
        second: Adam's second moment.
    """

    step: int = 0
    first: Mapping[str, Tensor] = field(default_factory=dict)
    second: Mapping[str, Tensor] = field(default_factory=dict)


def advance(
    local: LocalTraining, weights: Tensors, gradients: Tensors, *, memory: Memory, rate: float
) -> tuple[dict[str, Tensor], Memory]:
    """The weights after one step with `rate`, and what the next step must remember."""
    if local.weight_decay and local.optimiser != "adamw":
        gradients = zip_tensors(lambda g, w: g + local.weight_decay * w, gradients, weights)
    if local.optimiser == "sgd":
        return _sgd(local, weights, gradients, memory, rate)
    if local.weight_decay and local.optimiser == "adamw":
        weights = map_tensors(lambda w: w * (1 - rate * local.weight_decay), weights)
    return _adam(local, weights, gradients, memory, rate)


def _sgd(
    local: LocalTraining, weights: Tensors, gradients: Tensors, memory: Memory, rate: float
) -> tuple[dict[str, Tensor], Memory]:
    direction, velocity = gradients, gradients
    if local.momentum:
        if memory.step:
            # The first gradient is taken whole, as torch does: dampening begins with the second.
            kept = 1 - local.dampening
            velocity = zip_tensors(lambda v, g: local.momentum * v + kept * g, memory.first, gradients)
        direction = zip_tensors(lambda g, v: g + local.momentum * v if local.nesterov else v, gradients, velocity)
    after = zip_tensors(lambda w, d: w - rate * d, weights, direction)
    return after, Memory(memory.step + 1, velocity if local.momentum else {})


def _adam(
    local: LocalTraining, weights: Tensors, gradients: Tensors, memory: Memory, rate: float
) -> tuple[dict[str, Tensor], Memory]:
    (one, two), step = local.betas, memory.step + 1
    past = memory if memory.step else Memory(0, *(map_tensors(torch.zeros_like, gradients) for _ in range(2)))
    first = zip_tensors(lambda m, g: one * m + (1 - one) * g, past.first, gradients)
    second = zip_tensors(lambda v, g: two * v + (1 - two) * g * g, past.second, gradients)
    size, spread = rate / (1 - one**step), (1 - two**step) ** 0.5
    moves = zip_tensors(lambda m, v: size * m / (_root(v) / spread + local.eps), first, second)
    return zip_tensors(torch.sub, weights, moves), Memory(step, first, second)


def _root(value: Tensor) -> Tensor:
    """√, with derivative 0 at 0: a unit that was never active has no gradient, not an undefined one."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, 1.0).sqrt(), 0.0)
