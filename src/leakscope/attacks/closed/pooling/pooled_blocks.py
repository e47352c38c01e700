"""The blocks of convolution, activation and max pooling that a network begins with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope import networks
from leakscope.errors import UnsuitableError
from leakscope.networks import normalisation_constants
from leakscope.types import Observation

# An activation that rounding has carried to the edge of its range has no inverse there.
_EDGE = 1e-9


@dataclass(frozen=True)
class Bend:
    """A strictly increasing activation: its values lie in (low, high)."""

    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    # Derivative, as a function of the activation's value.
    slope: Callable[[Tensor], Tensor]
    low: float = -torch.inf
    high: float = torch.inf

    def inside(self, values: Tensor) -> Tensor:
        """`values` moved to where the inverse is finite."""
        return values.clamp(self.low + _EDGE, self.high - _EDGE)


@dataclass(frozen=True)
class PooledBlock:
    """z = W·patch + b, then the activation, then the largest of each window.

    `weight` is [O, P]; `columns` [P, Q] says which inputs patch q is made of, `windows` [M, k] which patches share a
    window. `shape` is that of the input; `name` that of the convolution. `mean` and `deviation` [P] are those of a
    normalisation before it, which `weight` and `bias` have taken in.
    """

    name: str
    shape: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    weight: Tensor
    bias: Tensor
    columns: Tensor
    windows: Tensor
    bend: Bend
    mean: Tensor
    deviation: Tensor

    @property
    def inputs(self) -> int:
        """How many numbers go in."""
        return self.shape[0] * self.shape[1] * self.shape[2]

    @property
    def pooled_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what comes out."""
        down = (self.shape[1] - self.kernel[0]) // self.stride[0] + 1
        across = (self.shape[2] - self.kernel[1]) // self.stride[1] + 1
        side = round(self.windows.shape[1] ** 0.5)
        return len(self.weight), down // side, across // side

    def outputs(self, inputs: Tensor) -> Tensor:
        """Pooled activations [n, O, h, w] of inputs [n, C, H, W]."""
        weight = self.weight.unflatten(1, (self.shape[0], *self.kernel))
        before = functional.conv2d(inputs, weight, self.bias, stride=self.stride)
        return self.bend.forward(functional.max_pool2d(before, round(self.windows.shape[1] ** 0.5)))


def take_apart(seen: Observation) -> tuple[list[PooledBlock], str]:
    """The blocks at the beginning of the network in double precision, and the name of the linear layer after them.

    Raises:
        UnsuitableError: The network begins otherwise, or an update of these layers is missing.
    """
    shape, mean, deviation = _check_shape(seen), 0.0, 1.0
    steps = list(networks.take_apart(seen.model, seen.input_shape).steps)
    passed, blocks = [type(step.layer).__name__ for step in steps], []
    while steps:
        step = steps.pop(0)
        layer = step.layer
        if layer is None or step.shared:
            break
        if isinstance(layer, nn.Flatten | nn.Identity | nn.Dropout):
            continue
        constants = normalisation_constants(layer)
        if constants is not None and not blocks:
            mean, deviation = (part.double().reshape(-1, 1, 1) for part in constants)
        elif isinstance(layer, nn.Linear) and blocks:
            _check_shared(seen, blocks, step.name, layer)
            return blocks, step.name
        elif isinstance(layer, nn.Conv2d) and len(steps) >= 2:
            bend, side = _bend(steps.pop(0).layer), _side(steps.pop(0).layer)
            blocks.append(_block(step.name, layer, shape=shape, bend=bend, side=side, mean=mean, deviation=deviation))
            shape, mean, deviation = blocks[-1].pooled_shape, 0.0, 1.0
        else:
            break
    raise UnsuitableError(
        "reading through max pooling needs blocks of convolution, activation and max pooling, then a linear layer; "
        f"got {type(seen.model).__name__} of {passed}"
    )


def _check_shape(seen: Observation) -> tuple[int, int, int]:
    if len(seen.input_shape) != 3 or seen.bounds is None:
        raise UnsuitableError(
            "reading through max pooling is for images [C, H, W] of a known range, "
            f"got inputs of {list(seen.input_shape)} with bounds={seen.bounds}"
        )
    return seen.input_shape[0], seen.input_shape[1], seen.input_shape[2]


def _block(
    name: str,
    layer: nn.Conv2d,
    *,
    shape: tuple[int, int, int],
    bend: Bend,
    side: int,
    mean: Tensor | float,
    deviation: Tensor | float,
) -> PooledBlock:
    plain = layer.padding in ((0, 0), "valid") and layer.dilation == (1, 1) and layer.groups == 1
    if not plain:
        raise UnsuitableError(
            f"reading through max pooling needs convolutions without padding, dilation and groups; {name!r} is {layer}"
        )
    kernel, stride = (layer.kernel_size[0], layer.kernel_size[1]), (layer.stride[0], layer.stride[1])
    weight = layer.weight.detach().double()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().double()
    each = weight.new_ones(weight.shape[1:])
    centre, spread = (each * mean).flatten(), (each * deviation).flatten()
    folded = weight.flatten(1) / spread
    places = torch.arange(shape[0] * shape[1] * shape[2], dtype=torch.float64, device=weight.device)
    columns = functional.unfold(places.reshape(1, *shape), kernel, stride=stride)[0].round().long()
    rows = (shape[1] - kernel[0]) // stride[0] + 1
    windows = _windows(rows, columns.shape[1] // rows, side).to(weight.device)
    return PooledBlock(
        name, shape, kernel, stride, folded, bias - folded @ centre, columns, windows, bend, centre, spread
    )


def _windows(height: int, width: int, side: int) -> Tensor:
    """Patches of each window [M, side²]; rows and columns that fill no window are left out, as pooling does."""
    grid = torch.arange(height * width).reshape(height, width)
    grid = grid[: height // side * side, : width // side * side]
    members = [grid[down::side, across::side].flatten() for down in range(side) for across in range(side)]
    return torch.stack(members, 1)


def _bend(layer: nn.Module | None) -> Bend:
    if isinstance(layer, nn.Sigmoid):
        return Bend(torch.sigmoid, torch.logit, lambda h: h * (1 - h), 0.0, 1.0)
    if isinstance(layer, nn.Tanh):
        return Bend(torch.tanh, torch.atanh, lambda h: 1 - h.square(), -1.0, 1.0)
    if isinstance(layer, nn.LeakyReLU) and layer.negative_slope > 0:
        flat = layer.negative_slope
        return Bend(
            lambda z: functional.leaky_relu(z, flat),
            lambda h: torch.where(h > 0, h, h / flat),
            lambda h: torch.where(h > 0, 1.0, flat).to(h),
        )
    raise UnsuitableError(
        f"reading through max pooling needs a strictly increasing activation (sigmoid, tanh, leaky ReLU), got {layer}"
    )


def _side(layer: nn.Module | None) -> int:
    size = layer.kernel_size if isinstance(layer, nn.MaxPool2d) else None
    if isinstance(size, Sequence) and len(set(size)) == 1:
        size = size[0]
    plain = (
        isinstance(layer, nn.MaxPool2d)
        and isinstance(size, int)
        and size > 1
        and layer.stride in (size, (size, size))
        and layer.padding in (0, (0, 0))
        and layer.dilation in (1, (1, 1))
        and not layer.ceil_mode
    )
    if not plain:
        raise UnsuitableError(f"reading through max pooling needs square windows that do not overlap, got {layer}")
    assert isinstance(size, int)
    return size


def _check_shared(seen: Observation, blocks: list[PooledBlock], name: str, layer: nn.Linear) -> None:
    needed = [*(f"{block.name}.weight" for block in blocks), f"{name}.weight", f"{name}.bias"]
    missing = [key for key in needed if key not in seen.update.tensors]
    if missing:
        raise UnsuitableError(f"reading through max pooling needs the update of {missing[0]!r}, which was not shared")
    pooled = blocks[-1].pooled_shape
    if layer.in_features != pooled[0] * pooled[1] * pooled[2]:
        raise UnsuitableError(f"{name!r} takes {layer.in_features} numbers, but pooling gives {list(pooled)}")
