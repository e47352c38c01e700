"""The small generator `leakscope prior train` makes, and the encoder that is needed to train it.

Both are pure functions of a name → tensor map, so that an attack can optimise a copy of the
weights per image without building a module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Generator, Tensor
from torch.nn import functional

from leakscope import rng as random
from leakscope.errors import UnsuitableError
from leakscope.types import Tensors

Shapes = dict[str, tuple[int, ...]]

_SMALLEST_SIDE = 8
_SLOPE = 0.2


@dataclass(frozen=True)
class ConvDecoder:
    """Latent → linear → transposed convolutions that double the side → sigmoid; no normalisation.

    `width` is the number of channels of the last stage; every earlier one has twice as many. A
    side that is not a power-of-two multiple of the first one is cut from the next larger.
    """

    image_shape: tuple[int, int, int]
    latent: int = 64
    width: int = 16

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """One vector."""
        return (self.latent,)

    @property
    def stages(self) -> int:
        """How often the side is doubled: to at most 8 on the small end."""
        return max(0, math.ceil(math.log2(max(self.image_shape[1:]) / _SMALLEST_SIDE)))

    @property
    def first(self) -> tuple[int, int, int]:
        """Channels, height and width after the linear layer."""
        scale = 2**self.stages
        return (self.width * scale, -(-self.image_shape[1] // scale), -(-self.image_shape[2] // scale))

    def shapes(self) -> Shapes:
        """Names and shapes of the decoder's weights."""
        found: Shapes = {"linear.weight": (math.prod(self.first), self.latent), "linear.bias": (math.prod(self.first),)}
        for stage in range(self.stages):
            wide = self.width * 2 ** (self.stages - stage)
            found |= {f"up{stage}.weight": (wide, wide // 2, 4, 4), f"up{stage}.bias": (wide // 2,)}
        channels = self.image_shape[0]
        return found | {"out.weight": (channels, self.width, 3, 3), "out.bias": (channels,)}

    def encoder_shapes(self) -> Shapes:
        """Names and shapes of the mirrored encoder's weights."""
        found: Shapes = {"in.weight": (self.width, self.image_shape[0], 3, 3), "in.bias": (self.width,)}
        for stage in range(self.stages):
            wide = self.width * 2**stage
            found |= {f"down{stage}.weight": (2 * wide, wide, 4, 4), f"down{stage}.bias": (2 * wide,)}
        return found | {"moments.weight": (2 * self.latent, math.prod(self.first)), "moments.bias": (2 * self.latent,)}

    def decode(self, weights: Tensors, latents: Tensor) -> Tensor:
        """Images in (0, 1)."""
        hidden = functional.linear(latents, weights["linear.weight"], weights["linear.bias"])
        hidden = _bent(hidden).unflatten(-1, self.first)
        for stage in range(self.stages):
            kernel, bias = weights[f"up{stage}.weight"], weights[f"up{stage}.bias"]
            hidden = _bent(functional.conv_transpose2d(hidden, kernel, bias, stride=2, padding=1))
        hidden = functional.conv2d(hidden, weights["out.weight"], weights["out.bias"], padding=1)
        return hidden[..., : self.image_shape[1], : self.image_shape[2]].sigmoid()

    def encode(self, weights: Tensors, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the latents of `images`."""
        scale, sides = 2**self.stages, images.shape[-2:]
        missing = [(-(-side // scale)) * scale - side for side in sides]
        hidden = functional.pad(images, (0, missing[1], 0, missing[0]))
        hidden = _bent(functional.conv2d(hidden, weights["in.weight"], weights["in.bias"], padding=1))
        for stage in range(self.stages):
            kernel, bias = weights[f"down{stage}.weight"], weights[f"down{stage}.bias"]
            hidden = _bent(functional.conv2d(hidden, kernel, bias, stride=2, padding=1))
        moments = functional.linear(hidden.flatten(1), weights["moments.weight"], weights["moments.bias"])
        mean, spread = moments.chunk(2, 1)
        return mean, spread

    def fit(self, weights: Tensors, image_shape: tuple[int, ...]) -> tuple[ConvDecoder, Tensors]:
        """Only for the size it was trained on."""
        if image_shape != self.image_shape:
            raise UnsuitableError(
                f"this prior makes images of {list(self.image_shape)}, the update is about {list(image_shape)}; "
                "train one for that size with leakscope prior train --size, or use prior=smooth"
            )
        return self, weights


def initialise(shapes: Shapes, rng: Generator) -> dict[str, Tensor]:
    """Normal weights of variance 2/fan-in, zero biases."""
    return {name: _weight(name, shape, rng) for name, shape in shapes.items()}


def _weight(name: str, shape: tuple[int, ...], rng: Generator) -> Tensor:
    drawn = random.normal(shape, rng)
    if name.endswith("bias"):
        return drawn.zero_()
    # A transposed convolution of stride 2 reaches each pixel with a quarter of its kernel.
    fan_in = shape[0] * 4 if name.startswith("up") else math.prod(shape[1:])
    return drawn.mul_(math.sqrt(2 / fan_in))


def _bent(hidden: Tensor) -> Tensor:
    return functional.leaky_relu(hidden, _SLOPE)
