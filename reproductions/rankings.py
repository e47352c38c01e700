"""Who is among the best, by scores of a few pictures, and how sure that is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from leakscope.reproduction import CellResult, Estimate, Results
from leakscope.reproduction.statistics import CONFIDENCE, RESAMPLES
from leakscope.rng import generator


def overlap_of_best(
    scores: Mapping[int, Sequence[float]], known: Collection[int], *, best: int, seed: int = 0
) -> Estimate:
    """How many of `known` are among the `best` with the lowest mean, with the interval of resampled pictures.

    Args:
        scores: one number per picture, by item; every item met the same pictures.
        known: items of another ranking.
        best: how many are taken.
        seed: of the resamples.
    """
    return _resample(scores, lambda means: _count_best(means, list(scores), known, best), seed=seed)


def overlap_of_rankings(
    one: Mapping[int, Sequence[float]], other: Mapping[int, Sequence[float]], *, best: int, seed: int = 0
) -> Estimate:
    """How many of the best of one ranking are among the best of the other; the pictures of `one` are resampled."""
    return overlap_of_best(one, best_of(other, best), best=best, seed=seed)


def best_of(scores: Mapping[int, Sequence[float]], best: int) -> list[int]:
    """The items with the lowest means, the lowest first."""
    means = {item: sum(values) / len(values) for item, values in scores.items()}
    return sorted(means, key=lambda item: means[item])[:best]


def operation_scores(results: Results, tag: str = "operation") -> dict[int, list[float]]:
    """S_pri by operation, one number per picture, of cells that scored one policy each."""
    return {int(one.cell.tags[tag]): _pictures(one) for one in results if one.is_ok and tag in one.cell.tags}


def _pictures(one: CellResult) -> list[float]:
    return [float(value) for value in one.values["privacy"][0]]


def _resample(scores: Mapping[int, Sequence[float]], count, *, seed: int) -> Estimate:
    table = torch.tensor(list(scores.values()), dtype=torch.float64)
    pictures = table.shape[1]
    value = float(count(table.mean(1)[None])[0])
    if pictures < 2:
        return Estimate(value, None, pictures)
    rows = torch.randint(pictures, (RESAMPLES, pictures), generator=generator(seed, "rankings"))
    weights = torch.zeros(RESAMPLES, pictures, dtype=torch.float64)
    weights.scatter_add_(1, rows, torch.ones_like(rows, dtype=torch.float64))
    found = count(weights @ table.T / pictures).double()
    tail = (1 - CONFIDENCE) / 2
    low, high = torch.quantile(found, torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return Estimate(value, (low, high), pictures)


def _count_best(means: Tensor, items: Sequence[int], known: Collection[int], best: int) -> Tensor:
    """Of rows of means [n, items]: how many known items are among the lowest, [n]."""
    is_known = torch.tensor([item in known for item in items])
    chosen = means.topk(min(best, len(items)), dim=1, largest=False).indices
    return is_known[chosen].sum(1)
