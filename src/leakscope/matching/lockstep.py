"""Which victims run together: those of one model whose tensors fit into memory side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from leakscope.client import trainable
from leakscope.types import Observation

# Gradients of all groups are held at once; beyond this the groups run in turns.
LOCKSTEP_BYTES = 1_000_000_000


def lockstep_chunks(seen: Sequence[Observation], counts: list[int], restarts: int) -> list[list[int]]:
    """Places of victims that can run together: same model object, names, kind, size; and memory."""
    chunks: dict[tuple[object, ...], list[list[int]]] = {}
    for place, (one, count) in enumerate(zip(seen, counts, strict=True)):
        told = (one.bounds, one.input_shape, one.update.kind, one.local, one.order, tuple(one.update.tensors))
        key = (id(one.model), id(one.loss), *told, count)
        room = max(1, LOCKSTEP_BYTES // (_bytes_per_group(one, count) * restarts))
        rows = chunks.setdefault(key, [[]])
        if len(rows[-1]) >= room:
            rows.append([])
        rows[-1].append(place)
    return [row for rows in chunks.values() for row in rows]


def count_parameters(seen: Observation) -> int:
    """Numbers that the network can learn."""
    return sum(value.numel() for value in trainable(seen.model).values())


def _bytes_per_group(seen: Observation, count: int) -> int:
    """Gradient, target, direction and their transforms, plus the activations of `count` examples."""
    activations = count * 600 * int(torch.tensor(seen.input_shape).prod())
    return seen.dtype.itemsize * (6 * count_parameters(seen) + activations)
