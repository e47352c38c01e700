"""Candidates that are the weights of an untrained generator: images and labels from one fixed latent.

The network's shape is the prior, as in a deep image prior; nothing was learned beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Generator, Tensor
from torch.nn import functional

from leakscope import rng as random
from leakscope.errors import UnsuitableError
from leakscope.matching.candidates.pixels import FIXED, Candidate, Variables
from leakscope.matching.labels.last_layer import probabilities
from leakscope.types import Observation, limits_of

LATENT = f"{FIXED}latent"

# The stem makes 4 × 4 features and the last block doubles the side once more.
SMALLEST_SIDE = 8


@dataclass(frozen=True)
class TwoBranchGenerator(Candidate):
    """GRNN's generator: one latent, a label branch and an image branch; the weights are the variables.

    Label branch: softmax(linear(z)). Image branch: a transposed convolution to 4 × 4, a gated linear unit,
    then log2(side) − 2 blocks of nearest ×2, 3 × 3 convolution, batch normalisation over the candidate's own
    examples and a gated linear unit; widths halve from `width` · side/8 to `width`, then the channels of the data.
    A sigmoid maps into the range of the data. Ren, Deng, Xie: GRNN, ACM TIST 2022, arXiv:2105.00529.
    """

    latent: int = 128
    width: int = 32

    def start(self, seen: Observation, count: int, rng: Generator) -> Variables:
        """A standard normal latent, and weights as PyTorch draws them by default."""
        like = torch.empty(0, device=seen.device, dtype=seen.dtype)
        widths = self.widths(seen)
        first, classes = 2 * widths[0], seen.num_classes
        found: Variables = {
            LATENT: random.normal((count, self.latent), rng, like=like),
            "label.weight": _draw((classes, self.latent), self.latent, rng, like),
            "label.bias": _draw((classes,), self.latent, rng, like),
            # PyTorch counts the outputs of a transposed convolution as its fan-in.
            "stem.weight": _draw((self.latent, first, 4, 4), first * 16, rng, like),
            "stem.bias": _draw((first,), first * 16, rng, like),
        }
        for block, (inner, outer) in enumerate(pairwise(widths)):
            found[f"up{block}.weight"] = _draw((2 * outer, inner, 3, 3), inner * 9, rng, like)
            found[f"up{block}.scale"] = like.new_ones(2 * outer)
            found[f"up{block}.shift"] = like.new_zeros(2 * outer)
        return found

    def decode(self, seen: Observation, variables: Variables) -> Tensor:
        """Images [groups, count, channels, side, side] inside the range of the data."""
        latent = variables[LATENT]
        groups = len(latent)
        # Groups are side by side as channels: one grouped convolution serves all of them.
        features = torch.einsum("gnz,gzchw->ngchw", latent, variables["stem.weight"])
        features = _gate(features + variables["stem.bias"][None, :, :, None, None])
        for block in range(len(self.widths(seen)) - 1):
            weight, scale, shift = (variables[f"up{block}.{part}"] for part in ("weight", "scale", "shift"))
            features = functional.interpolate(features.flatten(1, 2), scale_factor=2, mode="nearest")
            features = functional.conv2d(features, weight.flatten(0, 1), padding=1, groups=groups)
            features = functional.batch_norm(features, None, None, scale.flatten(), shift.flatten(), training=True)
            features = _gate(features.unflatten(1, (groups, -1)))
        low, high = limits_of(seen.bounds, features)
        # Contiguous: a group taken out later must give the very same numbers.
        return low + (high - low) * features.transpose(0, 1).sigmoid().contiguous()

    @property
    def generates_labels(self) -> bool:
        """By the second branch."""
        return True

    def soft_labels(self, seen: Observation, variables: Variables) -> Tensor:
        """Probabilities [groups, count, classes] of the label branch; of label 1 where there is one logit."""
        logits = torch.einsum("gnz,gcz->gnc", variables[LATENT], variables["label.weight"])
        return probabilities(logits + variables["label.bias"][:, None])

    def widths(self, seen: Observation) -> list[int]:
        """Channels after the stem and after every block, for the shape of `seen`."""
        side = check_side(seen)
        blocks = round(math.log2(side // SMALLEST_SIDE))
        return [*(self.width * 2**block for block in reversed(range(blocks + 1))), seen.input_shape[0]]


def check_side(seen: Observation) -> int:
    """The side of square images of a power of two; anything else is refused with the nearest sizes."""
    shape = seen.input_shape
    if len(shape) != 3 or shape[1] != shape[2]:
        raise UnsuitableError(
            f"the generator makes square images (channels, side, side), got inputs of shape {list(shape)}; "
            "pad or crop the data to a square, or use an attack on pixels such as 'inverting-gradients'"
        )
    side = shape[1]
    if side < SMALLEST_SIDE or side & (side - 1):
        below = 2 ** max(3, math.floor(math.log2(max(side, 1))))
        near = f"{below}" if side < SMALLEST_SIDE else f"{below} or {2 * below}"
        raise UnsuitableError(
            f"the generator doubles its side block by block, so it needs a power of two from {SMALLEST_SIDE} up, "
            f"got {side}×{side}; resize to {near}, or use an attack on pixels such as 'inverting-gradients'"
        )
    if seen.bounds is None:
        raise UnsuitableError(
            "the generator ends in a sigmoid and needs the range of the data, got bounds=None; "
            "give the batch its bounds, or use an attack on pixels such as 'dlg'"
        )
    return side


def _draw(shape: tuple[int, ...], fan_in: int, rng: Generator, like: Tensor) -> Tensor:
    """U(−1/√fan_in, 1/√fan_in): PyTorch's default for weights and biases."""
    return (2 * random.uniform(shape, rng, like=like) - 1) / math.sqrt(fan_in)


def _gate(features: Tensor) -> Tensor:
    """First half of the channels times the sigmoid of the second, [n, groups, channels, …]."""
    values, gates = features.chunk(2, dim=2)
    return values * gates.sigmoid()
