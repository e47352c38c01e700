"""How alike the gradient of a reconstruction is to the observed one, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

import leakscope as ls
from leakscope.defences.transforms import apply
from leakscope.registry import attack_from_spec
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.rng import generator
from leakscope.types import Batch, SharedUpdate, Tensors


def layer_gradsim(
    *,
    policy: str,
    data: str,
    indices: Sequence[Sequence[int]],
    model: Mapping[str, Any],
    attack: str,
    seed: int = 0,
) -> CallValues:
    """GradSim of every layer's weights at the end of an attack, and its mean over the first and the last third.

    Brings back, one entry per picture, `layers` (a list, in the order of the network), `shallow`, `deep` and `psnr`
    against the transformed picture.
    """
    places = [place for one in indices for place in one]
    batch = ls.data.load(data, split="test", indices=places)
    network = build_network(model, data, batch)
    layers: Any = []
    psnr = []
    for place in range(len(batch)):
        coins = generator(seed, "search", "coins", place)
        private = Batch(apply(policy, batch.inputs[place : place + 1], rng=coins), batch.targets[place : place + 1])
        update = _gradient(network, private)
        rebuilt = attack_from_spec(attack).reconstruct(
            ls.observe(network, update, scenario="B", truth=private), seed=seed + place
        )
        found = _gradient(network, Batch(rebuilt.inputs.detach().clamp(0, 1), private.targets))
        layers.append(similarities(update.tensors, found.tensors))
        psnr.append(float(ls.score(rebuilt, private).psnr.mean()))
    shallow, deep = zip(*(ends(one) for one in layers), strict=True)
    return CallValues({"layers": layers, "shallow": shallow, "deep": deep, "psnr": psnr})


def similarities(observed: Tensors, found: Tensors) -> list[float]:
    """Cosines of the weights' gradients, layer by layer; 0 where one of them is zero."""
    return [_cosine(value, found[name]) for name, value in observed.items() if value.ndim > 1]


def ends(layers: Sequence[float]) -> tuple[float, float]:
    """Means of the first and of the last third, at least one layer each."""
    third = max(1, len(layers) // 3)
    return fmean(layers[:third]), fmean(layers[-third:])


def _gradient(network: nn.Module, batch: Batch) -> SharedUpdate:
    update = ls.share(network, batch)
    assert isinstance(update, SharedUpdate)
    return update


def _cosine(one: Tensor, other: Tensor) -> float:
    return float(functional.cosine_similarity(one.double().flatten(), other.double().flatten(), dim=0))
