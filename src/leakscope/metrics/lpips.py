"""LPIPS: how different two pictures look to a network trained on human judgements.

The network is written out here in plain torch, so torchvision is not needed. The weights are a
state dict in the layout of the `lpips` package, version 0.1.
"""

from __future__ import annotations

import importlib
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.errors import BadInputError, MissingDataError, MissingExtraError, UsageError, install_line, suggest
from leakscope.files import load_state
from leakscope.metrics.metric import Metric
from leakscope.metrics.pairs import prepare_pair, require_images
from leakscope.types import Tensors

Backbone = Literal["alex", "vgg"]
CHUNK = 16
"""Pairs per pass: the first VGG layers of 224-pixel pictures take about 25 MB per picture."""


@dataclass(frozen=True)
class _Conv:
    name: str
    stride: int = 1
    padding: int = 1


@dataclass(frozen=True)
class _Trunk:
    """Five groups of convolutions; a max-pool comes before each group listed in `pooled`."""

    groups: tuple[tuple[_Conv, ...], ...]
    pooled: frozenset[int]
    pool_size: int
    smallest_side: int


_ALEX = _Trunk(
    groups=(
        (_Conv("net.slice1.0", stride=4, padding=2),),
        (_Conv("net.slice2.3", padding=2),),
        (_Conv("net.slice3.6"),),
        (_Conv("net.slice4.8"),),
        (_Conv("net.slice5.10"),),
    ),
    pooled=frozenset({1, 2}),
    pool_size=3,
    smallest_side=31,
)
_VGG = _Trunk(
    groups=(
        (_Conv("net.slice1.0"), _Conv("net.slice1.2")),
        (_Conv("net.slice2.5"), _Conv("net.slice2.7")),
        (_Conv("net.slice3.10"), _Conv("net.slice3.12"), _Conv("net.slice3.14")),
        (_Conv("net.slice4.17"), _Conv("net.slice4.19"), _Conv("net.slice4.21")),
        (_Conv("net.slice5.24"), _Conv("net.slice5.26"), _Conv("net.slice5.28")),
    ),
    pooled=frozenset({1, 2, 3, 4}),
    pool_size=2,
    smallest_side=16,
)
_TRUNKS = {"alex": _ALEX, "vgg": _VGG}


def lpips(
    reconstruction: Tensor, truth: Tensor, *, weights: str | os.PathLike[str] | None = None, net: Backbone = "alex"
) -> Tensor:
    """Learned perceptual distance per image: 0 for identical pictures, about 1 for unrelated ones.

    d = Σ_l mean_hw w_l · (f̂_l(a) − f̂_l(b))², with f̂_l the features of layer l at unit length
    along the channels. Grey images are repeated to three channels; images too small for the
    network (sides below 31 for alex, 16 for vgg) are enlarged bilinearly until they fit.

    Args:
        reconstruction: [n, 1 or 3, H, W].
        truth: [n, 1 or 3, H, W].
        weights: A safetensors file. None looks for `weights/lpips_<net>.safetensors` in the
            folder named by LEAKSCOPE_DATA, then takes them from the installed `lpips` package.
        net: "alex" or "vgg".

    References:
        Zhang, Isola, Efros, Shechtman and Wang, "The unreasonable effectiveness of deep
        features as a perceptual metric", CVPR 2018.
    """
    if net not in _TRUNKS:
        raise UsageError(f"lpips knows no network {net!r}.{suggest(net, _TRUNKS)}")
    require_images(truth, metric="lpips")
    if truth.shape[1] not in (1, 3):
        raise BadInputError(f"lpips needs 1 or 3 channels, got {truth.shape[1]}")
    left, right = prepare_pair(reconstruction, truth)
    trunk = _TRUNKS[net]
    parameters = {name: value.to(left) for name, value in _weights(weights, net).items()}
    parts = zip(left.split(CHUNK), right.split(CHUNK), strict=True)
    return torch.cat([_distance(a, b, trunk=trunk, parameters=parameters) for a, b in parts])


def _distance(left: Tensor, right: Tensor, *, trunk: _Trunk, parameters: Tensors) -> Tensor:
    total = left.new_zeros(len(left))
    features = zip(*(_features(x, trunk=trunk, parameters=parameters) for x in (left, right)), strict=True)
    for layer, (a, b) in enumerate(features):
        head = parameters[f"lin{layer}.model.1.weight"]
        total = total + functional.conv2d((a - b).square(), head).flatten(1).mean(1)
    return total


def _features(images: Tensor, *, trunk: _Trunk, parameters: Tensors) -> list[Tensor]:
    """Outputs of the five groups, each position scaled to unit length along the channels."""
    hidden = _enlarge(images, trunk.smallest_side) * 2 - 1
    hidden = (hidden - parameters["scaling_layer.shift"]) / parameters["scaling_layer.scale"]
    outputs = []
    for index, group in enumerate(trunk.groups):
        if index in trunk.pooled:
            hidden = functional.max_pool2d(hidden, trunk.pool_size, stride=2)
        for conv in group:
            weight, bias = parameters[f"{conv.name}.weight"], parameters[f"{conv.name}.bias"]
            hidden = functional.conv2d(hidden, weight, bias, stride=conv.stride, padding=conv.padding).relu()
        outputs.append(hidden / (torch.linalg.vector_norm(hidden, dim=1, keepdim=True) + 1e-10))
    return outputs


def _enlarge(images: Tensor, smallest_side: int) -> Tensor:
    images = images.expand(-1, 3, -1, -1)
    height, width = images.shape[-2:]
    if min(height, width) >= smallest_side:
        return images
    factor = smallest_side / min(height, width)
    size = (round(height * factor), round(width * factor))
    return functional.interpolate(images, size=size, mode="bilinear", align_corners=False)


def _weights(path: str | os.PathLike[str] | None, net: str) -> Tensors:
    if path is not None:
        return _from_file(Path(path), net)
    folder = os.environ.get("LEAKSCOPE_DATA")
    found = Path(folder, "weights", f"lpips_{net}.safetensors") if folder else None
    return _from_file(found, net) if found is not None and found.is_file() else _from_package(net)


def _from_file(path: Path, net: str) -> Tensors:
    if not path.is_file():
        raise MissingDataError(
            f"no LPIPS weights at {path}; expected a safetensors file in the layout of the lpips package, version 0.1"
        )
    # Links are followed: download caches consist of them.
    return _check_state(load_state(path.resolve()), net, source=str(path))


def _from_package(net: str) -> Tensors:
    remedy = (
        f"install it {install_line('lpips')}, or put lpips_{net}.safetensors into the folder weights "
        "of the one that LEAKSCOPE_DATA names"
    )
    try:
        # A torchvision that does not fit the installed torch fails with RuntimeError on import.
        package = importlib.import_module("lpips")
    except (ImportError, RuntimeError) as error:
        raise MissingExtraError(f"LPIPS weights not found and the lpips package cannot be loaded; {remedy}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it calls torchvision by a deprecated argument
            state = package.LPIPS(net=net, verbose=False).state_dict()
    except OSError as error:
        raise MissingDataError(f"the lpips package could not fetch its {net} network ({error}); {remedy}") from error
    return _check_state(state, net, source="the lpips package")


def _check_state(state: Tensors, net: str, *, source: str) -> Tensors:
    """Keep what the network uses, and name what is missing."""
    trunk = _TRUNKS[net]
    names = ["scaling_layer.shift", "scaling_layer.scale"]
    names += [f"lin{layer}.model.1.weight" for layer in range(len(trunk.groups))]
    names += [f"{conv.name}.{part}" for group in trunk.groups for conv in group for part in ("weight", "bias")]
    missing = [name for name in names if name not in state]
    if missing:
        raise BadInputError(
            f"{source} does not hold LPIPS weights for {net}: {', '.join(missing[:3])} missing; "
            "expected the layout of the lpips package, version 0.1"
        )
    return {name: state[name].detach() for name in names}


LPIPS = Metric(
    "lpips", lpips, higher_is_better=False, unit="", reference="Zhang et al., CVPR 2018", nothing=1.0, images_only=True
)
