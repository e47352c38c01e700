"""The server's side of a round: many clients' updates become one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from leakscope.errors import BadInputError, UsageError
from leakscope.types import SharedUpdate, Tensors


def fedavg(updates: Sequence[SharedUpdate], weights: Sequence[float] | None = None) -> SharedUpdate:
    """Weighted mean of the clients' updates: Σ wᵢ uᵢ / Σ wᵢ.

    All updates must be of one kind and share the same tensors. Half-precision tensors are summed
    in float32; the result keeps their dtype. Buffers are averaged likewise, integer counters take
    the largest. Non-finite entries pass through: whether to go on is the server's decision.

    Args:
        updates: One update per client.
        weights: One weight per client; by default each client's number of examples.

    References:
        McMahan et al., "Communication-efficient learning of deep networks from decentralized
        data", AISTATS 2017.

    Example:
        >>> one = SharedUpdate("gradient", {"w": torch.tensor([1.0])}, num_examples=1)
        >>> two = SharedUpdate("gradient", {"w": torch.tensor([4.0])}, num_examples=2)
        >>> fedavg([one, two]).tensors["w"].tolist()
        [3.0]
    """
    _check_kinds(updates)
    shares = _shares(updates, weights)
    counts = [update.num_examples for update in updates]
    local = updates[0].local
    return SharedUpdate(
        kind=updates[0].kind,
        tensors=average_tensors([update.tensors for update in updates], shares),
        num_examples=None if None in counts else sum(count for count in counts if count is not None),
        local=local if all(update.local == local for update in updates) else None,
        buffers=average_tensors([update.buffers for update in updates], shares),
    )


def _check_kinds(updates: Sequence[SharedUpdate]) -> None:
    if not updates:
        raise UsageError("fedavg needs at least one update, got none")
    for index, update in enumerate(updates):
        if not isinstance(update, SharedUpdate):
            raise BadInputError(
                f"fedavg averages SharedUpdates, but update {index} is a {type(update).__name__}; "
                "sealed updates are added without opening them by federated.combine"
            )
    kinds = {update.kind for update in updates}
    if len(kinds) > 1:
        raise BadInputError("fedavg needs updates of one kind, got gradients and deltas together")


def _shares(updates: Sequence[SharedUpdate], weights: Sequence[float] | None) -> list[float]:
    """Weights that sum to 1."""
    if weights is None:
        counts = [update.num_examples for update in updates]
        if None in counts:
            raise UsageError(
                f"update {counts.index(None)} does not say how many examples it is from; "
                "set num_examples, or pass weights=[1, 1, …] for a plain mean"
            )
        weights = [float(count) for count in counts if count is not None]
    if len(weights) != len(updates):
        raise UsageError(f"fedavg needs one weight per update ({len(updates)}), got {len(weights)}")
    total = math.fsum(weights)
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or total <= 0:
        raise UsageError(f"fedavg needs finite weights ≥ 0 with a positive sum, got {list(weights)}")
    return [weight / total for weight in weights]


def average_tensors(maps: Sequence[Tensors], shares: Sequence[float]) -> dict[str, Tensor]:
    """Σ sᵢ tᵢ by name, where the shares sum to 1; of integers, which count something, the largest."""
    first = maps[0]
    for index, other in enumerate(maps):
        if other.keys() != first.keys():
            odd = sorted(set(other) ^ set(first))
            raise BadInputError(f"updates 0 and {index} share different tensors: {', '.join(odd[:5])} on one side only")
    return {name: _weigh(name, [tensors[name] for tensors in maps], shares) for name in first}


def _weigh(name: str, values: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    first = values[0]
    for index, value in enumerate(values):
        if value.shape != first.shape or value.device != first.device:
            raise BadInputError(
                f"{name} is {list(first.shape)} on {first.device} in update 0, but {list(value.shape)} "
                f"on {value.device} in update {index}; all clients must train the same network"
            )
    if not first.is_floating_point():
        return torch.stack(list(values)).amax(0)
    total = torch.zeros_like(first, dtype=torch.promote_types(first.dtype, torch.float32))
    for value, share in zip(values, shares, strict=True):
        total += share * value.detach().to(total.dtype)
    return total.to(first.dtype)
