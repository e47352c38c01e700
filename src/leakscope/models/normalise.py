"""The first layer of every reference network: pixels in [0, 1] come in, normalised values go on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from leakscope.errors import UsageError
from leakscope.input_values import find_constants
from leakscope.networks import InputNormalisation

Constants = tuple[Sequence[float], Sequence[float]]


class Normalise(InputNormalisation):
    """Subtract a mean and divide by a deviation per channel; both are buffers of shape [C].

    With mean 0 and deviation 1 the output equals the input bit for bit.

    Example:
        >>> layer = Normalise((0.5,), (0.25,))
        >>> layer(torch.ones(1, 1, 2, 2)).flatten().tolist()
        [2.0, 2.0, 2.0, 2.0]
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Hold one mean and one deviation per channel."""
        super().__init__()
        self._constants = (tuple(mean), tuple(std))
        self.register_buffer("mean", torch.tensor(self._constants[0]))
        self.register_buffer("std", torch.tensor(self._constants[1]))

    def reset_buffers(self) -> None:
        """Write the constants again, for a module whose storage was just allocated."""
        self.mean.copy_(torch.tensor(self._constants[0]))
        self.std.copy_(torch.tensor(self._constants[1]))

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise images [n, C, H, W]."""
        return (inputs - self.mean[:, None, None]) / self.std[:, None, None]

    def extra_repr(self) -> str:
        """Show the constants."""
        return f"mean={self._constants[0]}, std={self._constants[1]}"


def resolve_constants(normalise: str | Constants | None, channels: int) -> tuple[list[float], list[float]]:
    """Turn a name, a (mean, std) pair or None into one mean and one deviation per channel.

    A single constant serves every channel: gray images repeated to three channels keep it.
    """
    mean, std = _lookup(normalise)
    if len(mean) == len(std) == 1:
        mean, std = mean * channels, std * channels
    if not len(mean) == len(std) == channels:
        raise UsageError(
            f"normalise={normalise!r} holds {len(mean)} means and {len(std)} deviations for {channels} channels; "
            "give one pair per channel, or a single pair for all"
        )
    if min(std) <= 0:
        raise UsageError(f"normalise needs deviations above 0, got {std}")
    return mean, std


def _lookup(normalise: str | Constants | None) -> tuple[list[float], list[float]]:
    if normalise is None:
        return [0.0], [1.0]
    if isinstance(normalise, str):
        normalise = find_constants(normalise)
    try:
        mean, std = normalise
        return [float(value) for value in mean], [float(value) for value in std]
    except (TypeError, ValueError):
        raise UsageError(
            f"normalise must be a name, a (mean, std) pair of sequences or None, got {normalise!r}"
        ) from None
