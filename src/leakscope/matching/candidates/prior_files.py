"""Priors from and to files; the one place where an attack's `prior=` option becomes a value."""

from __future__ import annotations

import os
from pathlib import Path

from leakscope.errors import UsageError
from leakscope.files import read_tensors, write_tensors
from leakscope.priors import Prior, describe, recognise, smooth_prior

SMOOTH = "smooth"


def load_prior(path: str | os.PathLike[str], *, budget_mb: float = 2048) -> Prior:
    """Read a prior that `save_prior` wrote, or the decoder of a tiny latent autoencoder.

    Raises:
        BadInputError: The file is damaged or holds something else.
    """
    tensors, metadata = read_tensors(path, budget_mb=budget_mb)
    return recognise(tensors, metadata, name=Path(path).name)


def save_prior(path: str | os.PathLike[str], prior: Prior) -> Path:
    """Write a trained prior as safetensors with its architecture; whole or not at all."""
    tensors, metadata = describe(prior)
    return write_tensors(path, tensors, metadata)


def as_prior(value: Prior | str | os.PathLike[str] | None, *, attack: str) -> Prior:
    """The prior that an option names: a value, "smooth", or a file."""
    if isinstance(value, Prior):
        return value
    if value == SMOOTH:
        return smooth_prior()
    if value is None or not isinstance(value, str | os.PathLike):
        raise UsageError(
            f"attack {attack!r} needs prior=…, got {value!r}; train one with "
            "'leakscope prior train --data fashion-mnist --out prior.safetensors' and pass prior=prior.safetensors, "
            "or pass prior=smooth, which needs no training"
        )
    return load_prior(value)
