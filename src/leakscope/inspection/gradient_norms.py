"""Lengths of the gradients of single examples, without the gradients themselves where that is possible.

A linear layer's gradient of one example is the outer product δ aᵀ of what comes back and what went in, and its length
‖δ‖·‖a‖: one pass for all examples. Other layers take a gradient for each example.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

from leakscope.client import example_gradients, trainable
from leakscope.networks import run
from leakscope.tasks import TaskLoss
from leakscope.types import Batch, Tensors

# Numbers of all single gradients that are in memory at once.
_MOST_NUMBERS = 50_000_000


def gradient_norms(model: nn.Module, batch: Batch, loss: TaskLoss) -> dict[str, Tensor]:
    """‖gᵢ‖ of every example for every weight tensor, name → [n]; `loss` is a mean over the batch."""
    weights = {name: value for name, value in trainable(model).items() if value.ndim > 1}
    found = _of_linear_layers(model, batch, loss)
    found = {name: value for name, value in found.items() if name in weights}
    rest = {name: value for name, value in weights.items() if name not in found}
    return {**found, **_one_by_one(model, batch, loss, rest)} if rest else found


def _of_linear_layers(model: nn.Module, batch: Batch, loss: TaskLoss) -> dict[str, Tensor]:
    owners = Counter(id(value) for _, value in model.named_parameters(remove_duplicate=False))
    layers = [
        path for path, part in model.named_modules() if isinstance(part, nn.Linear) and owners[id(part.weight)] == 1
    ]
    received: dict[str, list[Tensor]] = {path: [] for path in layers}
    returned: dict[str, list[Tensor]] = {path: [] for path in layers}

    def before(path: str, values: tuple[Any, ...]) -> None:
        received[path].append(values[0])

    def after(path: str, output: Tensor) -> Tensor:
        returned[path].append(output)
        # What comes next may work in place, and the derivative is by what the layer returned.
        return output.clone()

    with torch.enable_grad():
        output = run(model, batch.inputs, layers=layers, before=before, after=after)
        # Layers that see several places of an example, or run twice, add products up.
        simple = [path for path in layers if len(returned[path]) == 1 and returned[path][0].ndim == 2]
        ends = [returned[path][0] for path in simple]
        back = torch.autograd.grad(loss(output, batch.targets), ends, materialize_grads=True, allow_unused=True)
    return {
        f"{path}.weight" if path else "weight": len(batch)
        * delta.norm(dim=1).double()
        * received[path][0].detach().norm(dim=1).double()
        for path, delta in zip(simple, back, strict=True)
    }


def _one_by_one(model: nn.Module, batch: Batch, loss: TaskLoss, weights: Tensors) -> dict[str, Tensor]:
    size = max(1, _MOST_NUMBERS // sum(value.numel() for value in weights.values()))
    found: dict[str, list[Tensor]] = {name: [] for name in weights}
    for start in range(0, len(batch), size):
        part = Batch(batch.inputs[start : start + size], batch.targets[start : start + size], bounds=None)
        for name, value in example_gradients(model, weights, part, loss=loss).items():
            found[name].append(value.flatten(1).norm(dim=1).double())
    return {name: torch.cat(values) for name, values in found.items()}
