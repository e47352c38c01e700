"""Layers put into a network by defences that change it."""

from __future__ import annotations

import math

from torch import Generator, Tensor, nn

from leakscope import rng as random


def replace_layer(network: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    """`network` with `layer` in the place of the module of this name; the root is replaced altogether."""
    layer.train(network.training)
    if not name:
        return layer
    parent, _, child = name.rpartition(".")
    network.get_submodule(parent).register_module(child, layer)
    return network


def build_linear(inputs: int, outputs: int, rng: Generator, *, like: Tensor) -> nn.Linear:
    """A linear layer with PyTorch's default start, U(−1/√inputs, 1/√inputs), drawn from `rng`."""
    layer = nn.Linear(inputs, outputs, device="meta")
    bound = 1 / math.sqrt(inputs)
    drawn = [bound * (2 * random.uniform(shape, rng, like=like) - 1) for shape in ((outputs, inputs), (outputs,))]
    layer.weight, layer.bias = (nn.Parameter(value.detach()) for value in drawn)
    return layer
