"""Deal a data set out to clients: every example goes to exactly one of them."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from leakscope.errors import UsageError, suggest
from leakscope.rng import child_seed, generator

SCHEMES = ("iid", "by-class", "dirichlet")


def partition(
    targets: Tensor,
    *,
    clients: int,
    scheme: str = "iid",
    alpha: float = 0.5,
    shards: int = 2,
    seed: int = 0,
) -> list[Tensor]:
    """Return one tensor of indices per client; no example is lost or given twice, no client is empty.

    Args:
        targets: Labels [n] of the data set.
        clients: How many clients.
        scheme: "iid", "by-class" (each client gets `shards` runs of examples sorted by label) or
            "dirichlet" (each class is divided by proportions drawn from Dirichlet(`alpha`)).
        alpha: Small values give each client few classes, large values approach "iid".
        shards: For "by-class".
        seed: The same seed gives the same partition.

    Example:
        >>> [len(part) for part in partition(torch.arange(10) % 2, clients=3)]
        [4, 3, 3]
    """
    if scheme not in SCHEMES:
        raise UsageError(f"unknown partition scheme {scheme!r}.{suggest(scheme, SCHEMES)}")
    labels = torch.as_tensor(targets).cpu()
    if not 1 <= clients <= len(labels):
        raise UsageError(f"clients must be between 1 and the number of examples, {len(labels)}, got {clients}")
    if scheme == "iid":
        return _sort(iid(len(labels), clients, seed=seed))
    if scheme == "by-class":
        return _sort(by_class(labels, clients, shards=shards, seed=seed))
    return _sort(dirichlet(labels, clients, alpha=alpha, seed=seed))


def iid(examples: int, clients: int, *, seed: int = 0) -> list[Tensor]:
    """Shuffle, then cut into parts whose sizes differ by at most one."""
    return list(torch.randperm(examples, generator=generator(seed, "partition", "iid")).tensor_split(clients))


def by_class(labels: Tensor, clients: int, *, shards: int = 2, seed: int = 0) -> list[Tensor]:
    """Sort by label, cut into clients × shards runs, and deal the runs out at random.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017.
    """
    if shards < 1 or clients * shards > len(labels):
        raise UsageError(
            f"by-class needs shards ≥ 1 and clients × shards ≤ {len(labels)} examples, got {clients} × {shards}"
        )
    runs = torch.argsort(labels, stable=True).tensor_split(clients * shards)
    order = torch.randperm(len(runs), generator=generator(seed, "partition", "by-class")).tolist()
    return [torch.cat([runs[i] for i in order[client::clients]]) for client in range(clients)]


def dirichlet(labels: Tensor, clients: int, *, alpha: float = 0.5, seed: int = 0) -> list[Tensor]:
    """Divide each class by proportions from Dirichlet(alpha, …, alpha), one draw per class.

    Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution", 2019.
    """
    if not (alpha > 0 and math.isfinite(alpha)):
        raise UsageError(f"alpha must be a finite number above 0, got {alpha}")
    parts: list[list[int]] = [[] for _ in range(clients)]
    for label in labels.unique().tolist():
        rng = np.random.default_rng(child_seed(seed, "partition", "dirichlet", label))
        members = rng.permutation(torch.nonzero(labels == label).flatten().numpy())
        shares = rng.dirichlet(np.full(clients, alpha))
        cuts = np.floor(np.cumsum(shares)[:-1] * len(members) + 0.5).astype(int)
        for part, piece in zip(parts, np.split(members, cuts.clip(0, len(members))), strict=True):
            part.extend(piece.tolist())
    return [torch.tensor(part) for part in _without_empty(parts)]


def _without_empty(parts: list[list[int]]) -> list[list[int]]:
    """Give each empty client one example of the largest: training needs at least one."""
    for part in parts:
        if not part:
            part.append(max(parts, key=len).pop())
    return parts


def _sort(parts: list[Tensor]) -> list[Tensor]:
    return [part.sort().values for part in parts]
