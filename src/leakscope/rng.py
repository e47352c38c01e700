"""Named child generators from one seed.

Randomness is drawn on the CPU and then moved, so the same seed gives the same numbers on
every device, and a new consumer of randomness never shifts the numbers of another.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Generator, Tensor


def child_seed(seed: int, *path: object) -> int:
    """Derive a 63-bit seed from `seed` and a path of names."""
    text = "/".join([str(int(seed)), *(str(part) for part in path)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *path: object) -> Generator:
    """Return a CPU generator that depends on nothing but `seed` and `path`."""
    return Generator(device="cpu").manual_seed(child_seed(seed, *path))


def normal(shape: tuple[int, ...], rng: Generator, *, like: Tensor | None = None) -> Tensor:
    """Standard normal numbers, on the device and in the dtype of `like`."""
    return _place(torch.randn(shape, generator=rng, dtype=torch.float64), like)


def uniform(shape: tuple[int, ...], rng: Generator, *, like: Tensor | None = None) -> Tensor:
    """Uniform numbers in [0, 1), on the device and in the dtype of `like`."""
    return _place(torch.rand(shape, generator=rng, dtype=torch.float64), like)


def normal_like(tensor: Tensor, rng: Generator) -> Tensor:
    """Standard normal numbers shaped and placed as `tensor`."""
    return normal(tuple(tensor.shape), rng, like=tensor)


def laplace_like(tensor: Tensor, rng: Generator) -> Tensor:
    """Laplace(0, 1) numbers shaped and placed as `tensor`: difference of two exponentials."""
    shape = tuple(tensor.shape)
    first = torch.empty(shape, dtype=torch.float64).exponential_(generator=rng)
    second = torch.empty(shape, dtype=torch.float64).exponential_(generator=rng)
    return _place(first - second, tensor)


def _place(values: Tensor, like: Tensor | None) -> Tensor:
    return values.float() if like is None else values.to(device=like.device, dtype=like.dtype)
