"""The layers an attacker looks for: the head, batch normalisation, and the normalisation of the inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from leakscope.networks.forward import record_inputs, run
from leakscope.tasks import unwrap

_BATCH_NORM = nn.modules.batchnorm._BatchNorm


class InputNormalisation(nn.Module):
    """A first layer that computes (x − mean) / std with one constant per channel, or one for all.

    A network's own normalisation is recognised by this class. One rule recognises others: a module without
    parameters and children that holds tensors `mean` and `std`, buffers or plain attributes.
    """

    mean: Tensor
    std: Tensor


def find_head(model: nn.Module, probe: Tensor) -> nn.Linear | None:
    """The linear layer whose output *is* the model's output, if its weights serve nowhere else."""
    found: list[tuple[str, Tensor]] = []

    def record(name: str, output: Any) -> None:
        found.append((name, output))

    linear = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    with torch.no_grad():
        output = unwrap(run(model, probe, layers=linear, after=record))
    heads = [name for name, value in found if value.shape == output.shape and torch.equal(value, output)]
    if not heads:
        return None
    head = linear[heads[-1]]
    uses = sum(name == heads[-1] for name, _output in found)
    owners = sum(value is head.weight for _name, value in model.named_parameters(remove_duplicate=False))
    return head if uses == owners == 1 else None


def norm_layers(model: nn.Module) -> dict[str, nn.modules.batchnorm._BatchNorm]:
    """The batch-normalisation layers by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, _BATCH_NORM)}


def norm_statistics(model: nn.Module, inputs: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Mean and variance of what each batch-normalisation layer receives, differentiable in `inputs`."""
    found: dict[str, tuple[Tensor, Tensor]] = {}

    def record(name: str, received: tuple[Any, ...]) -> None:
        dims = [d for d in range(received[0].ndim) if d != 1]
        found[name] = (received[0].mean(dims), received[0].var(dims, unbiased=False))

    layers = norm_layers(model)
    if layers:
        run(model, inputs, layers=layers, before=record)
    return found


def is_normalisation(module: nn.Module) -> bool:
    """Whether this module normalises inputs: by its class, or by the rule of `InputNormalisation`."""
    return normalisation_constants(module) is not None


def normalisation_constants(module: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Mean and std of a module that normalises inputs, None for any other."""
    if isinstance(module, InputNormalisation):
        return module.mean, module.std
    if next(module.parameters(), None) is not None or next(module.children(), None) is not None:
        return None
    tensors = {**vars(module), **dict(module.named_buffers(recurse=False))}
    mean, std = tensors.get("mean"), tensors.get("std")
    if not isinstance(mean, Tensor) or not isinstance(std, Tensor) or isinstance(module, _BATCH_NORM):
        return None
    return (mean, std) if mean.numel() == std.numel() else None


def find_normalisation(model: nn.Module, input_shape: tuple[int, ...]) -> tuple[Tensor, Tensor] | None:
    """Mean and std of the normalisation that runs first, for inputs of this shape; None where there is none."""
    found = {}
    for name, module in model.named_modules():
        constants = normalisation_constants(module)
        if constants is not None and constants[0].numel() in (1, input_shape[0]):
            found[name] = constants
    if len(found) < 2:
        return next(iter(found.values()), None)
    # Modules may be registered in any order; two examples, for batch normalisation in training mode refuses one.
    probe = next(iter(found.values()))[0].new_full((2, *input_shape), 0.5)
    first = next(iter(record_inputs(model, probe, found)), None)
    return None if first is None else found[first]
