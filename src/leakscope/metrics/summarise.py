"""From one value per example to the few numbers of a report: worst first, never only a mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakscope.errors import BadInputError, UsageError
from leakscope.rng import generator

QUANTILES = (5, 25, 75, 95)


@dataclass(frozen=True)
class Spread:
    """How `n` values are spread. `worst` is the value of the example that leaks most.

    `quantiles` maps per cent to value; `ci` is the bootstrap interval of the median. One value
    alone has an interval of width 0, which says nothing: read it together with `n`.
    """

    median: float
    worst: float
    mean: float
    quantiles: dict[int, float]
    ci: tuple[float, float]
    n: int


def summarise(
    values: Tensor | Sequence[float],
    *,
    higher_is_worse: bool = True,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Spread:
    """Summarise values of one metric over examples.

    Args:
        values: Finite numbers; NaN and Inf are refused, for leaving them out would hide failures.
        higher_is_worse: True where a high value means a worse leak (PSNR, SSIM), False for
            errors and distances (MSE, LPIPS).
        confidence: Level of the interval of the median.
        resamples: Bootstrap draws behind that interval.
        seed: Seed of those draws.

    Example:
        >>> found = summarise([10.0, 12.0, 31.0])
        >>> found.worst, found.median, found.n
        (31.0, 12.0, 3)
    """
    if not 0 < confidence < 1 or resamples < 1:
        raise UsageError(f"summarise needs 0 < confidence < 1 and resamples ≥ 1, got {confidence} and {resamples}")
    numbers = _finite(values)
    medians = _bootstrap_medians(numbers, resamples=resamples, seed=seed)
    low, high = np.quantile(medians, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Spread(
        median=float(np.median(numbers)),
        worst=float(numbers.max() if higher_is_worse else numbers.min()),
        mean=float(numbers.mean()),
        quantiles={percent: float(np.quantile(numbers, percent / 100)) for percent in QUANTILES},
        ci=(float(low), float(high)),
        n=len(numbers),
    )


def success_curve(
    values: Tensor | Sequence[float], thresholds: Sequence[float], *, higher_is_worse: bool = True
) -> list[float]:
    """Share of examples at least as exposed as each threshold.

    Example:
        >>> success_curve([10.0, 20.0, 30.0, 40.0], [20, 35])
        [0.75, 0.25]
    """
    numbers = _finite(values)
    hits = [numbers >= level if higher_is_worse else numbers <= level for level in thresholds]
    return [float(hit.mean()) for hit in hits]


def exact_interval(successes: int, total: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper–Pearson interval of a share: it holds at the stated confidence for any number of examples.

    The lower end is the share p at which `successes` or more are seen with probability (1 − confidence)/2, the upper
    end the one at which `successes` or fewer are.

    References:
        Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
        Biometrika 1934.

    Example:
        >>> [round(bound, 3) for bound in exact_interval(0, 8)]
        [0.0, 0.369]
    """
    if total < 1 or not 0 <= successes <= total or not 0 < confidence < 1:
        raise UsageError(
            "exact_interval needs 0 ≤ successes ≤ total, total ≥ 1 and 0 < confidence < 1, "
            f"got {successes} of {total} at {confidence}"
        )
    # Here because the import takes a moment that no other function should pay.
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(betaincinv(successes, total - successes + 1, tail))
    high = 1.0 if successes == total else float(betaincinv(successes + 1, total - successes, 1 - tail))
    return low, high


def _finite(values: Tensor | Sequence[float]) -> NDArray[np.float64]:
    tensor = values if isinstance(values, Tensor) else torch.tensor(list(values), dtype=torch.float64)
    numbers = tensor.detach().to("cpu", torch.float64).numpy().reshape(-1)
    bad = int((~np.isfinite(numbers)).sum())
    if bad or len(numbers) == 0:
        raise BadInputError(
            f"a summary needs at least one value and all finite, got {len(numbers)} values of which {bad} are NaN or "
            "Inf; count failed cells apart instead of averaging over them"
        )
    return numbers


def _bootstrap_medians(numbers: NDArray[np.float64], *, resamples: int, seed: int) -> NDArray[np.float64]:
    rng = generator(seed, "bootstrap")
    # Blocks bound the memory; the stream of numbers does not depend on the block size.
    block = max(1, 1_000_000 // len(numbers))
    medians = []
    for start in range(0, resamples, block):
        shape = (min(block, resamples - start), len(numbers))
        draws = torch.randint(len(numbers), shape, generator=rng).numpy()
        medians.append(np.median(numbers[draws], axis=1))
    return np.concatenate(medians)
