"""Decoders of tiny latent autoencoders for natural images (TAESD and its kin), read off their weights.

The files hold numbered layers and no description; names and shapes say the rest: a layer with
`conv` is a residual block, a `pool` in it a normalised mixing of channels, a bare convolution
without bias follows a doubling of the side. Reference: O. B. Bohan, TAESD, github.com/madebyollin/taesd.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor
from torch.nn import functional

from leakscope.errors import BadInputError, UnsuitableError
from leakscope.types import Tensors

# Latents beyond ±3 are bent back, as in training.
_REACH = 3.0
_GROUPS = 4

Part = Literal["conv", "up", "block", "mixed", "out"]


@dataclass(frozen=True)
class ResidualDecoder:
    """Fully convolutional: a latent [c, h, w] becomes an image 2^ups times as large.

    `layers` lists (number, kind) in order. Sizes that are not such a multiple are cut from the next
    larger; grey images are the mean of the colours.
    """

    channels: int
    width: int
    layers: tuple[tuple[int, Part], ...]
    image_shape: tuple[int, int, int] | None = None

    @property
    def scale(self) -> int:
        """Pixels per latent along a side."""
        return 2 ** sum(part == "up" for _, part in self.layers)

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """Channels and the sides divided by `scale`."""
        _, height, width = self.image_shape or (3, self.scale, self.scale)
        return (self.channels, -(-height // self.scale), -(-width // self.scale))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of all layers, as in the file."""
        found: dict[str, tuple[int, ...]] = {}
        for number, part in self.layers:
            found |= {f"{number}.{name}": shape for name, shape in self._layer(part).items()}
        return found

    def _layer(self, part: Part) -> dict[str, tuple[int, ...]]:
        wide = self.width
        if part == "conv":
            return {"weight": (wide, self.channels, 3, 3), "bias": (wide,)}
        if part == "up":
            return {"weight": (wide, wide, 3, 3)}
        if part == "out":
            return {"weight": (3, wide, 3, 3), "bias": (3,)}
        block = {f"conv.{i}.{name}": shape for i in (0, 2, 4) for name, shape in _conv(wide).items()}
        if part == "mixed":
            block |= {
                "pool.0.weight": (4 * wide, wide, 1, 1),
                "pool.1.weight": (4 * wide,),
                "pool.1.bias": (4 * wide,),
                "pool.3.weight": (wide, 4 * wide, 1, 1),
            }
        return block

    def decode(self, weights: Tensors, latents: Tensor) -> Tensor:
        """Images in [0, 1]: the decoder's output is already on that scale and is cut off there."""
        hidden = (latents / _REACH).tanh() * _REACH
        for number, part in self.layers:
            hidden = _apply(part, {n: weights[f"{number}.{n}"] for n in self._layer(part)}, hidden)
        assert self.image_shape is not None
        colours, height, width = self.image_shape
        hidden = hidden[..., :height, :width]
        return (hidden if colours == 3 else hidden.mean(-3, keepdim=True)).clamp(0, 1)

    def fit(self, weights: Tensors, image_shape: tuple[int, ...]) -> tuple[ResidualDecoder, Tensors]:
        """Any size, in colour or grey."""
        if len(image_shape) != 3 or image_shape[0] not in (1, 3):
            raise UnsuitableError(
                f"this prior makes colour or grey images [3 or 1, H, W], the update is about {list(image_shape)}; "
                "use prior=smooth, or an attack without a prior"
            )
        return replace(self, image_shape=(image_shape[0], image_shape[1], image_shape[2])), weights


def recognise_residual(tensors: Tensors) -> ResidualDecoder | None:
    """The decoder that `tensors` are the weights of, or None where they are something else."""
    numbers = {name: re.fullmatch(r"(\d+)\.(.+)", name) for name in tensors}
    if not tensors or not all(numbers.values()):
        return None
    layers: dict[int, set[str]] = {}
    for found in numbers.values():
        assert found is not None
        layers.setdefault(int(found[1]), set()).add(found[2])
    order = sorted(layers)
    first, last = tensors.get(f"{order[0]}.weight"), tensors.get(f"{order[-1]}.weight")
    if first is None or last is None or first.ndim != 4 or last.ndim != 4 or last.shape[0] != 3:
        return None
    parts: tuple[tuple[int, Part], ...] = tuple((number, _kind(number, order, layers[number])) for number in order)
    decoder = ResidualDecoder(int(first.shape[1]), int(first.shape[0]), parts)
    # A side of 2^6 pixels per latent is beyond any of these decoders.
    if math.log2(decoder.scale) > 6:
        raise BadInputError(f"expected a decoder that enlarges at most 64 times, got {decoder.scale}; use another file")
    return decoder


def _kind(number: int, order: list[int], names: set[str]) -> Part:
    if any(name.startswith("pool.") for name in names):
        return "mixed"
    if any(name.startswith("conv.") for name in names):
        return "block"
    if number == order[0]:
        return "conv"
    return "out" if number == order[-1] else "up"


def _conv(width: int) -> dict[str, tuple[int, ...]]:
    return {"weight": (width, width, 3, 3), "bias": (width,)}


def _apply(part: Part, own: Tensors, hidden: Tensor) -> Tensor:
    if part in ("conv", "out"):
        bare = functional.conv2d(hidden, own["weight"], own["bias"], padding=1)
        return bare.relu() if part == "conv" else bare
    if part == "up":
        larger = functional.interpolate(hidden, scale_factor=2.0, mode="nearest")
        return functional.conv2d(larger, own["weight"], padding=1)
    if part == "mixed":
        hidden = hidden + _mix(own, hidden)
    inner = functional.conv2d(hidden, own["conv.0.weight"], own["conv.0.bias"], padding=1).relu()
    inner = functional.conv2d(inner, own["conv.2.weight"], own["conv.2.bias"], padding=1).relu()
    return (functional.conv2d(inner, own["conv.4.weight"], own["conv.4.bias"], padding=1) + hidden).relu()


def _mix(own: Tensors, hidden: Tensor) -> Tensor:
    wide = functional.conv2d(hidden, own["pool.0.weight"])
    normed = functional.group_norm(wide, _GROUPS, own["pool.1.weight"], own["pool.1.bias"])
    return functional.conv2d(normed.relu(), own["pool.3.weight"])
