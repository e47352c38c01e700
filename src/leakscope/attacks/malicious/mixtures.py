"""Results that stand for more than one person: how they are counted, said, and kept from passing for a recovery."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from leakscope.types import Observation, Reconstruction, Status, limits_of


def settle_mixtures(members: Sequence[int | None], *, examples: int | None) -> Status:
    """OK if at least one example stands alone, or may: mixtures show no one, which is no evidence of safety."""
    alone = any(count == 1 for count in members) or (None in members and examples is None)
    return Status.OK if alone else Status.DIVERGED


def known_members(members: Sequence[int | None]) -> tuple[int, ...] | None:
    """The counts as a result holds them: all, or none."""
    known = tuple(count for count in members if count is not None)
    return known if len(known) == len(members) else None


def describe_mixtures(members: Sequence[int | None], *, examples: int | None) -> tuple[str, ...]:
    """How many results show one example, and how many a mixture."""
    if None in members:
        return (
            f"{len(members)} results; how many examples are behind each is not known without the size of the batch: a "
            "result may be a mixture of several",
        )
    known = [count for count in members if count is not None]
    mixed = [count for count in known if count > 1]
    total = examples or sum(known)
    alone = f"{len(known) - len(mixed)} of {total} examples stand alone"
    if not mixed:
        return (alone,)
    return (
        f"{alone}; {len(mixed)} results are mixtures of {min(mixed)} to {max(mixed)} examples ({sum(mixed)} together), "
        "which this attack cannot hold apart: none of them is a person",
    )


def fail(seen: Observation, reason: str) -> Reconstruction:
    """A grey picture, for a reason."""
    like = torch.zeros((1, *seen.input_shape), device=seen.device, dtype=seen.dtype)
    low, high = limits_of(seen.bounds, like)
    grey = like + (low + high) / 2
    return Reconstruction(grey, None, float("nan"), Status.DIVERGED, (float("nan"),), notes=(*seen.notes, reason))
