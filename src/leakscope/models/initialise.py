"""Fill a network's parameters from a seed, without touching the global random state.

Each parameter has its own generator, so another number of classes changes the last layer only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.nn import init

from leakscope.models.normalise import Normalise
from leakscope.rng import generator

Rule = Callable[[nn.Module, str, Tensor, Generator], object]


def initialise(model: nn.Module, rule: Rule, *, seed: int, name: str) -> None:
    """Fill every parameter of `model` by `rule` and reset its buffers."""
    with torch.no_grad():
        for path, module in model.named_modules():
            if isinstance(module, Normalise):
                module.reset_buffers()
            if isinstance(module, nn.BatchNorm2d):
                module.reset_running_stats()
            for kind, parameter in module.named_parameters(recurse=False):
                rule(module, kind, parameter, generator(seed, "models", name, path, kind))


def default(module: nn.Module, kind: str, parameter: Tensor, rng: Generator) -> None:
    """PyTorch's own scheme: U(−1/√fan_in, 1/√fan_in) for weights and biases, batch norm 1 and 0."""
    if isinstance(module, nn.BatchNorm2d):
        parameter.fill_(1.0 if kind == "weight" else 0.0)
        return
    bound = 1 / math.sqrt(module.get_parameter("weight")[0].numel())
    init.uniform_(parameter, -bound, bound, generator=rng)


def uniform(module: nn.Module, kind: str, parameter: Tensor, rng: Generator) -> None:
    """U(−0.5, 0.5) on everything, biases and batch norm included: the scheme of DLG and GRNN."""
    init.uniform_(parameter, -0.5, 0.5, generator=rng)


def _kaiming(module: nn.Module, kind: str, parameter: Tensor, rng: Generator, *, mode: str, linear: bool) -> None:
    # What the scheme leaves open (linear layers, biases, batch norm) stays as PyTorch has it.
    kinds = (nn.Conv2d, nn.Linear) if linear else nn.Conv2d
    if kind == "weight" and isinstance(module, kinds):
        init.kaiming_normal_(parameter, mode=mode, nonlinearity="relu", generator=rng)  # type: ignore[arg-type]
    else:
        default(module, kind, parameter, rng)


kaiming_fan_in: Rule = partial(_kaiming, mode="fan_in", linear=True)
kaiming_fan_out: Rule = partial(_kaiming, mode="fan_out", linear=False)


def vgg(module: nn.Module, kind: str, parameter: Tensor, rng: Generator) -> None:
    """Kaiming fan-out convolutions, N(0, 0.01²) linear layers, biases 0."""
    if kind == "bias":
        parameter.zero_()
    elif isinstance(module, nn.Linear):
        init.normal_(parameter, std=0.01, generator=rng)
    else:
        kaiming_fan_out(module, kind, parameter, rng)
