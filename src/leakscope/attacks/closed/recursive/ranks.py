"""Predicts, before any update is seen, which layers the closed form can go through."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.attacks.closed.recursive import convolution
from leakscope.attacks.closed.recursive.activations import apply, slope
from leakscope.attacks.closed.recursive.layer_chain import LayerBlock, SolvableChain, take_apart
from leakscope.errors import UnsuitableError

Verdict = Literal["exact", "deficient"]


@dataclass(frozen=True)
class LayerRank:
    """One layer's unknowns and equations; `rank` of the unknowns are fixed.

    Padded pixels count as unknowns with one equation each, as in the paper.
    """

    name: str
    unknowns: int
    gradient_equations: int
    weight_equations: int
    padding_equations: int
    rank: int

    @property
    def verdict(self) -> Verdict:
        """Whether every unknown is fixed."""
        return "exact" if self.rank >= self.unknowns else "deficient"

    def __str__(self) -> str:
        equations = self.gradient_equations + self.weight_equations + self.padding_equations
        return f"{self.name}: rank {self.rank} of {self.unknowns} unknowns from {equations} equations, {self.verdict}"


@dataclass(frozen=True)
class RankReport:
    """The layers the recursion passes through, first layer first."""

    layers: tuple[LayerRank, ...]

    @property
    def exact(self) -> bool:
        """Whether the input is determined: no layer lacks an equation."""
        return all(layer.verdict == "exact" for layer in self.layers)

    def __str__(self) -> str:
        return "\n".join(str(layer) for layer in self.layers)


def rank_report(model: nn.Module, input_shape: tuple[int, ...], *, seed: int = 0) -> RankReport:
    """Rank analysis of every layer of a chain, at a random input and a random gradient at the output.

    A layer can be inverted where gradient, weight and padding equations together have as many independent
    rows as its padded input has entries. Weights are the model's own, so the rank is that of this network
    and not only of its shapes.

    Example:
        >>> from leakscope.models import build
        >>> print(rank_report(build("fcn3", num_classes=1, in_channels=1, image_size=8), (1, 8, 8)).exact)
        True
    """
    chain = take_apart(model, tuple(input_shape))
    top = choose_top(chain, shared=None)
    blocks = chain.blocks[: top + 1]
    draw = random.generator(seed, "rank")
    weight = blocks[0].weight()
    values = random.uniform((int(torch.tensor(input_shape).prod()),), draw, like=weight)
    outputs: list[Tensor] = []
    values = apply(chain.entry, values)
    for block in blocks:
        outputs.append(block.forward(values))
        values = apply(block.activations, outputs[-1])
    gradient = random.normal(blocks[-1].out_shape, draw, like=weight)
    found = [_layer(blocks[-1], gradient)]
    for place in range(top - 1, -1, -1):
        pulled = blocks[place + 1].pull_back(gradient).reshape(blocks[place].out_shape)
        gradient = pulled * slope(blocks[place].activations, outputs[place])
        found.append(_layer(blocks[place], gradient))
    return RankReport(tuple(reversed(found)))


def choose_top(chain: SolvableChain, *, shared: Collection[str] | None) -> int:
    """Place of the layer where the recursion begins.

    The lowest linear layer whose bias gradient was shared, since that gradient *is* k and nothing above it
    matters; else the last layer, whose k follows from the loss. `shared` names the tensors of the update,
    None stands for all.
    """
    for place, block in enumerate(chain.blocks):
        _check_shared(block, shared)
        _check_size(block)
        if isinstance(block.layer, nn.Linear) and block.layer.bias is not None and _has(shared, f"{block.name}.bias"):
            return place
    if chain.reason is not None or not chain.blocks:
        raise UnsuitableError(
            f"rgap goes back layer by layer, but {chain.reason or 'there is no linear or convolutional layer'}; "
            "it needs linear layers, convolutions and LeakyReLU, sigmoid or tanh up to the output or to a linear "
            "layer with a shared bias; use inverting-gradients or dlg"
        )
    last = chain.blocks[-1]
    if not isinstance(last.layer, nn.Linear) or last.activations:
        raise UnsuitableError(
            f"rgap begins at a linear layer that gives the logits, but the network ends with {last.name!r}"
            f"{' and an activation' if last.activations else ', a convolution'}; use inverting-gradients or dlg"
        )
    return len(chain.blocks) - 1


def count_equations(block: LayerBlock, rank: int) -> LayerRank:
    """Count a layer's equations; `rank` is that of the unpadded unknowns."""
    unknowns = int(torch.tensor(block.in_shape).prod())
    weights = block.layer.weight
    outputs = int(torch.tensor(block.out_shape).prod())
    zeros = 0
    if isinstance(block.layer, nn.Conv2d):
        sides = [side + 2 * int(pad) for side, pad in zip(block.in_shape[1:], block.layer.padding, strict=True)]
        zeros = block.in_shape[0] * sides[0] * sides[1] - unknowns
    return LayerRank(block.name, unknowns + zeros, weights.numel(), outputs, zeros, rank + zeros)


def _layer(block: LayerBlock, gradient: Tensor) -> LayerRank:
    if isinstance(block.layer, nn.Linear):
        return count_equations(block, block.layer.in_features if bool((gradient != 0).any()) else 0)
    return count_equations(block, convolution.numeric_rank(block, gradient))


def _has(shared: Collection[str] | None, name: str) -> bool:
    return shared is None or name in shared


def _check_shared(block: LayerBlock, shared: Collection[str] | None) -> None:
    if not _has(shared, f"{block.name}.weight"):
        raise UnsuitableError(
            f"rgap needs the gradient of every layer it goes through, but {block.name!r}.weight was not shared; "
            "use an attack that matches what was shared, such as inverting-gradients"
        )


def _check_size(block: LayerBlock) -> None:
    if isinstance(block.layer, nn.Linear):
        return
    pixels = block.in_shape[1] * block.in_shape[2]
    rows = block.layer.weight.shape[0] * block.layer.weight[0, 0].numel()
    if pixels > convolution.LARGEST or block.in_shape[0] * max(0, pixels - rows) > convolution.LARGEST:
        raise UnsuitableError(
            f"rgap solves one dense system per layer, and {block.name!r} has an input of {list(block.in_shape)}: its "
            f"gradient leaves more than {convolution.LARGEST} unknowns; use smaller images or inverting-gradients"
        )
