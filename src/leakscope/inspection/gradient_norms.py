"""Lengths of the gradients of single examples, without the gradients themselves where that is possible.

A linear layer's gradient of one example is the outer product δ aᵀ of what comes back and what went in, and its length
‖δ‖·‖a‖. One that sees several places of an example, as convolutions do, adds products up, Σₚ δₚ aₚᵀ. Both take one pass
for all examples; other layers take a gradient for each.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.client import example_gradients, trainable
from leakscope.networks import run
from leakscope.tasks import TaskLoss
from leakscope.types import Batch, Tensors

# Numbers of all single gradients that are in memory at once.
_MOST_NUMBERS = 50_000_000


def gradient_norms(model: nn.Module, batch: Batch, loss: TaskLoss) -> dict[str, Tensor]:
    """‖gᵢ‖ of every example for every weight tensor, name → [n]; `loss` is a mean over the batch."""
    weights = {name: value for name, value in trainable(model).items() if value.ndim > 1}
    found = _of_products(model, batch, loss)
    found = {name: value for name, value in found.items() if name in weights}
    rest = {name: value for name, value in weights.items() if name not in found}
    return {**found, **_one_by_one(model, batch, loss, rest)} if rest else found


def _of_products(model: nn.Module, batch: Batch, loss: TaskLoss) -> dict[str, Tensor]:
    """Of layers whose gradient is a sum of products, and which run once."""
    owners = Counter(id(value) for _, value in model.named_parameters(remove_duplicate=False))
    layers = {path: part for path, part in model.named_modules() if _is_product(part, owners)}
    received: dict[str, list[Tensor]] = {path: [] for path in layers}
    returned: dict[str, list[Tensor]] = {path: [] for path in layers}

    def before(path: str, values: tuple[Any, ...]) -> None:
        received[path].append(values[0].detach())

    def after(path: str, output: Tensor) -> Tensor:
        returned[path].append(output)
        # The derivative is by what the layer returned.
        return output.clone()

    with torch.enable_grad():
        output = run(model, batch.inputs, layers=list(layers), before=before, after=after)
        once = [path for path in layers if _by_example(layers[path], returned[path], len(batch))]
        ends = [returned[path][0] for path in once]
        back = torch.autograd.grad(loss(output, batch.targets), ends, materialize_grads=True, allow_unused=True)
    return {
        f"{path}.weight" if path else "weight": len(batch) * _lengths(layers[path], received[path][0], delta)
        for path, delta in zip(once, back, strict=True)
    }


def _is_product(part: nn.Module, owners: Counter[int]) -> bool:
    """Whether a layer's gradient is a sum of products of what `_places` returns, and its weight is its own."""
    if isinstance(part, nn.Conv2d):
        plain = part.groups == 1 and part.padding_mode == "zeros" and not isinstance(part.padding, str)
        return plain and owners[id(part.weight)] == 1
    return isinstance(part, nn.Linear) and owners[id(part.weight)] == 1


def _by_example(layer: nn.Module, returned: list[Tensor], count: int) -> bool:
    """Whether it ran once, with the examples along its first axis and no other that could be theirs."""
    if len(returned) != 1 or len(returned[0]) != count:
        return False
    return isinstance(layer, nn.Conv2d) or count not in returned[0].shape[1:-1]


def _lengths(layer: nn.Module, received: Tensor, delta: Tensor) -> Tensor:
    """‖Σₚ δₚ aₚᵀ‖ of every example, [n]."""
    if delta.ndim == 2:
        return delta.norm(dim=1).double() * received.norm(dim=1).double()
    weight = layer.get_parameter("weight")
    seen = delta[0].numel() // len(weight) * weight[0].numel()
    size = max(1, _MOST_NUMBERS // max(weight.numel(), seen))
    found = []
    for start in range(0, len(delta), size):
        outer, inner = _places(layer, received[start : start + size], delta[start : start + size])
        found.append((outer @ inner).flatten(1).norm(dim=1).double())
    return torch.cat(found)


def _places(layer: nn.Module, received: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
    """δ as [n, outputs, places], and what each place saw as [n, places, inputs]."""
    if isinstance(layer, nn.Conv2d):
        assert not isinstance(layer.padding, str)
        seen = functional.unfold(
            received, layer.kernel_size, dilation=layer.dilation, padding=layer.padding, stride=layer.stride
        )
        return delta.flatten(2), seen.transpose(1, 2)
    return delta.flatten(1, -2).transpose(1, 2), received.flatten(1, -2)


def _one_by_one(model: nn.Module, batch: Batch, loss: TaskLoss, weights: Tensors) -> dict[str, Tensor]:
    size = max(1, _MOST_NUMBERS // sum(value.numel() for value in weights.values()))
    found: dict[str, list[Tensor]] = {name: [] for name in weights}
    for start in range(0, len(batch), size):
        part = Batch(batch.inputs[start : start + size], batch.targets[start : start + size], bounds=None)
        for name, value in example_gradients(model, weights, part, loss=loss).items():
            found[name].append(value.flatten(1).norm(dim=1).double())
    return {name: torch.cat(values) for name, values in found.items()}
