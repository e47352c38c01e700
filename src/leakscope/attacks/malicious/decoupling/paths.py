"""Linear layers with a way of its own for every class (Eqs. 8 and 10-13 of the MKOR paper).

The gradient of class c's score then reaches rows of the first layer that no other class reaches, and these rows hold
what the examples of class c sent there.

Eqs. 12 and 13 as printed let the nodes of a way also hear all nodes that belong to no class, through weights of either
sign: at random, a rectifier then closes about half of the ways. Here those weights are made positive (`|W|`), as
the ones along the way are, so that every way stays open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from leakscope import rng as random
from leakscope.attacks.malicious.anatomy import Anatomy, LinearStage
from leakscope.errors import UnsuitableError

Form = Literal["naive", "inconspicuous"]
# Ways for each class where dropout closes some: that all of them are closed has probability p⁴ a layer.
_SPARE_PATHS = 4
# The score of the class that everything is sent to; softmax leaves less than 1e-20 for all others.
_DUMP_BIAS = 60.0
# Least value that a closed rectifier is kept away from.
_MARGIN = 0.1


@dataclass(frozen=True)
class DecoupledForm:
    """How the ways look.

    Attributes:
        form: all else zero and every first row the mean, or hidden among the weights that were there.
        alpha: factor from one row of a pair to the other; of the two, a rectifier always leaves one open.
        noise: deviation of what is put in the place of zeros.
        dump: class whose bias takes all probability, for cross-entropy; None for none.
    """

    form: Form
    alpha: float
    noise: float
    dump: int | None


@dataclass(frozen=True)
class ClassPaths:
    """What a server remembers of its linear layers.

    Attributes:
        layers: from the one whose rows are read to the one that makes the scores.
        rows: rows of the first layer, for every class.
        gains: what a class's score moves by for each of these rows, where they are open.
        exclusive: whether an example opens one row of a pair only.
        equal_scores: whether the scores of all classes are the same for any example.
        dump: as in `DecoupledForm`.
    """

    layers: tuple[LinearStage, ...]
    rows: tuple[tuple[int, ...], ...]
    gains: tuple[tuple[float, ...], ...]
    exclusive: bool
    equal_scores: bool
    dump: int | None


def write_paths(
    model: nn.Module, anatomy: Anatomy, *, style: DecoupledForm, rng: Generator, shuffle: bool, attack: str
) -> ClassPaths:
    """Set the weights of the linear layers."""
    layers = [_linear(model, stage.name) for stage in anatomy.linear]
    _check_layers(anatomy, layers, attack=attack)
    classes = layers[-1].out_features
    spare = _SPARE_PATHS if any(stage.dropped for stage in anatomy.linear) else 1
    pairs = 2 if style.form == "inconspicuous" and len(layers) > 1 else 1
    spare = _affordable(layers, classes, pairs=pairs, spare=spare, attack=attack)
    nodes = _choose_nodes(layers, classes * spare, pairs=pairs, rng=rng if shuffle else None)
    with torch.no_grad():
        if style.form == "naive":
            gains = _write_naive(layers, nodes, spare=spare, style=style, anatomy=anatomy, rng=rng)
        else:
            gains = _write_hidden(layers, nodes, spare=spare, style=style, rng=rng)
        if style.dump is not None:
            layers[-1].bias[style.dump] = _DUMP_BIAS
    together = spare * pairs
    flat = [row for group in nodes[0] for row in group] if len(layers) > 1 else list(range(classes))
    width = together if len(layers) > 1 else 1
    is_rectified = all(stage.response == "linear" and stage.slope == 0 for stage in anatomy.linear[:-1])
    return ClassPaths(
        layers=anatomy.linear,
        rows=tuple(tuple(flat[place : place + width]) for place in range(0, len(flat), width)),
        gains=tuple(tuple(gains[place : place + width]) for place in range(0, len(gains), width)),
        exclusive=pairs == 2 and is_rectified and spare == 1,
        equal_scores=style.form == "naive" and not any(stage.dropped for stage in anatomy.linear),
        dump=style.dump,
    )


def _linear(model: nn.Module, name: str) -> nn.Linear:
    layer = model.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    return layer


def _check_layers(anatomy: Anatomy, layers: Sequence[nn.Linear], *, attack: str) -> None:
    without = [stage.name for stage, layer in zip(anatomy.linear, layers, strict=True) if layer.bias is None]
    if without:
        raise UnsuitableError(
            f"{attack} divides by the gradient of biases, and linear layer {without[0]!r} has none; use "
            "inverting-gradients"
        )


def _affordable(layers: Sequence[nn.Linear], classes: int, *, pairs: int, spare: int, attack: str) -> int:
    """Ways for each class that the layers have nodes for."""
    for layer, each in zip(layers[:-1], [pairs, *[1] * len(layers)], strict=False):
        if layer.out_features < classes * each:
            raise UnsuitableError(
                f"{attack} needs {classes * each} nodes in every hidden linear layer, {each} for each of {classes} "
                f"classes, and one has {layer.out_features}; use fewer classes, form='naive', or class-fishing"
            )
        spare = min(spare, layer.out_features // (classes * each))
    return spare


def _choose_nodes(
    layers: Sequence[nn.Linear], ways: int, *, pairs: int, rng: Generator | None
) -> list[list[tuple[int, ...]]]:
    """For every hidden layer the node of each way, or both nodes of its pair in the first."""
    chosen = []
    for number, layer in enumerate(layers[:-1]):
        each = pairs if number == 0 else 1
        order = range(layer.out_features) if rng is None else torch.randperm(layer.out_features, generator=rng).tolist()
        chosen.append([tuple(order[place : place + each]) for place in range(0, ways * each, each)])
    return chosen


def _write_naive(
    layers: Sequence[nn.Linear],
    nodes: list[list[tuple[int, ...]]],
    *,
    spare: int,
    style: DecoupledForm,
    anatomy: Anatomy,
    rng: Generator,
) -> list[float]:
    """Every row of the first layer is the mean of what comes in; one weight of 1 leads on from each node."""
    first = layers[0]
    first.weight.fill_(1 / first.in_features)
    first.bias.fill_(_lift(anatomy))
    for number, layer in enumerate(layers[1:], start=1):
        layer.weight.copy_(_noise(layer.weight, style.noise, rng))
        layer.bias.zero_()
        for way, sources in enumerate(nodes[number - 1]):
            layer.weight[_goal(nodes, number, way, spare), sources[0]] = 1.0
    ways = len(nodes[0]) if nodes else first.out_features
    return [1.0] * ways


def _lift(anatomy: Anatomy) -> float:
    """A bias that keeps the mean of any picture above zero: features are, normalised pixels need not be."""
    if anatomy.convolutions or anatomy.constants is None:
        return _MARGIN
    mean, std = anatomy.constants
    return max(0.0, float((mean / std).mean())) + _MARGIN


def _write_hidden(
    layers: Sequence[nn.Linear],
    nodes: list[list[tuple[int, ...]]],
    *,
    spare: int,
    style: DecoupledForm,
    rng: Generator,
) -> list[float]:
    """Pairs of rows in the first layer (Eqs. 10, 11); one open way on from each pair (Eqs. 12, 13, made to work)."""
    if not nodes:
        return [1.0] * layers[0].out_features
    first = layers[0]
    for one, other in nodes[0]:
        first.weight[other] = style.alpha * first.weight[one]
        first.bias[other] = style.alpha * first.bias[one]
    gains = torch.ones(len(nodes[0]), 2)
    for number, layer in enumerate(layers[1:], start=1):
        gains = gains * _write_way(layer, nodes, number, spare=spare, noise=style.noise, rng=rng)
    return gains.flatten().tolist()


def _write_way(
    layer: nn.Linear, nodes: list[list[tuple[int, ...]]], number: int, *, spare: int, noise: float, rng: Generator
) -> Tensor:
    """Lead every way through one layer; the weights along it, [ways, rows of a pair or 1]."""
    goals = [_goal(nodes, number, way, spare) for way in range(len(nodes[number - 1]))]
    goal = torch.tensor(goals, device=layer.weight.device)
    sources = torch.tensor(nodes[number - 1], device=layer.weight.device)
    # A weight of zero, as pruning leaves it, would close the way.
    usual = layer.weight.abs().mean().clamp_min(1e-6)
    along = layer.weight[goal[:, None], sources].abs()
    along = torch.where(along > 0, along, usual)
    if number < len(nodes):
        layer.weight[goal] = layer.weight[goal].abs()
    columns = sources.flatten()
    layer.weight[:, columns] = _noise(layer.weight[:, columns], noise, rng)
    layer.weight[goal[:, None], sources] = along
    layer.bias[goal] = layer.bias[goal].abs()
    return along.cpu()


def _goal(nodes: list[list[tuple[int, ...]]], number: int, way: int, spare: int) -> int:
    """Where a way leads in layer `number`: its node there, or its class in the last."""
    return nodes[number][way][0] if number < len(nodes) else way // spare


def _noise(like: Tensor, size: float, rng: Generator) -> Tensor:
    return size * random.normal_like(like, rng) if size > 0 else torch.zeros_like(like)
