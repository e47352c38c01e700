"""Memory that is used again instead of being returned: page faults cost more than the arithmetic."""

from __future__ import annotations

import math
from collections.abc import Hashable

import torch
from torch import Tensor

# Just below the largest threshold glibc adopts by itself (32 MiB).
LARGEST_HEAP_ALLOCATION = 32 * 2**20 - 8192


class Scratch:
    """One growing buffer for each key. Whoever takes a key again overwrites what it held."""

    def __init__(self) -> None:
        self._buffers: dict[Hashable, Tensor] = {}

    def take(self, key: Hashable, *shape: int, like: Tensor) -> Tensor:
        """An uninitialised tensor in the dtype and on the device of `like`."""
        size = math.prod(shape)
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() < size or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self._buffers[key] = like.new_empty(size)
        return buffer[:size].view(shape)


def keep_freed_memory(like: Tensor) -> None:
    """Allocate and free one large buffer, without writing to it.

    glibc then raises the size above which it hands memory back to the kernel. Without this a
    fifth of an evaluation is spent on page faults for buffers that were freed a moment before.
    """
    torch.empty(LARGEST_HEAP_ALLOCATION, dtype=torch.uint8, device=like.device)
