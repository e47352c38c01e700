"""What an attacker knows of images before seeing any update: a decoder and the latents it is fed.

The value is content: two priors with the same architecture and weights are the same prior,
wherever they were loaded from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import torch
from torch import Generator, Tensor

from leakscope import rng as random
from leakscope.errors import BadInputError
from leakscope.types import Tensors


class Architecture(Protocol):
    """A decoder as a pure function of its weights: a frozen dataclass, whose repr is hashed with them."""

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """[C, H, W] of the images; None until `fit` where any size will do."""
        ...

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """Shape of one latent, for `image_shape`."""
        ...

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every weight, by name."""
        ...

    def decode(self, weights: Tensors, latents: Tensor) -> Tensor:
        """Images [n, C, H, W] in [0, 1] for latents [n, *latent_shape], differentiable in both."""
        ...

    def fit(self, weights: Tensors, image_shape: tuple[int, ...]) -> tuple[Architecture, Tensors]:
        """The same decoder for images of `image_shape`, or UnsuitableError where it has none."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Prior:
    """A decoder with its weights; `about` says where it comes from and plays no part in equality."""

    architecture: Architecture
    weights: Mapping[str, Tensor]
    about: str = ""
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        _check_weights(self.architecture, self.weights)
        object.__setattr__(self, "weights", {name: value.detach() for name, value in self.weights.items()})
        object.__setattr__(self, "fingerprint", _digest(self.architecture, self.weights))

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, Prior) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Prior({type(self.architecture).__name__}, sha256={self.fingerprint[:16]!r})"

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """[C, H, W] of its images; None where it fits any size."""
        return self.architecture.image_shape

    @property
    def latent_shape(self) -> tuple[int, ...]:
        """Shape of one latent."""
        return self.architecture.latent_shape

    def decode(self, latents: Tensor, weights: Tensors | None = None) -> Tensor:
        """Images [n, C, H, W] in [0, 1] for latents [n, *latent_shape]; `weights` replaces its own."""
        return self.architecture.decode(self.weights if weights is None else weights, latents)

    def sample(self, count: int, rng: Generator, *, like: Tensor | None = None) -> Tensor:
        """`count` latents from the standard normal distribution the decoder was made for."""
        return random.normal((count, *self.latent_shape), rng, like=like)

    def at(self, image_shape: tuple[int, ...], *, like: Tensor) -> Prior:
        """This prior for images of `image_shape`, on the device and in the dtype of `like`."""
        return _place(self, tuple(image_shape), like.dtype, like.device)


@lru_cache(maxsize=16)
def _place(prior: Prior, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Prior:
    """Cached by content: an attack decodes at every step and must not fit or hash again."""
    architecture, weights = prior.architecture.fit(prior.weights, shape)
    moved = {name: value.to(device=device, dtype=dtype) for name, value in weights.items()}
    return Prior(architecture, moved, prior.about)


def _check_weights(architecture: Architecture, weights: Tensors) -> None:
    expected = architecture.shapes()
    odd = sorted(set(expected) ^ set(weights))
    if odd:
        where = "is missing" if odd[0] in expected else "is unknown"
        raise BadInputError(f"the prior's weight {odd[0]!r} {where}; the weights belong to another decoder")
    for name, value in weights.items():
        if tuple(value.shape) != expected[name] or not value.is_floating_point():
            raise BadInputError(
                f"the prior's weight {name!r} must be floating point of shape {list(expected[name])}, "
                f"got {value.dtype} of {list(value.shape)}; the weights belong to another decoder"
            )
        if not bool(torch.isfinite(value).all()):
            raise BadInputError(f"the prior's weight {name!r} holds NaN or Inf; train the prior again")


def _digest(architecture: Architecture, weights: Tensors) -> str:
    digest = hashlib.sha256(repr(architecture).encode())
    for name in sorted(weights):
        value = weights[name].detach().to("cpu").contiguous()
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
