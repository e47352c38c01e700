"""An attack on a delta of local steps, with the time of one of its own steps."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from torch import Tensor

import leakscope as ls
from leakscope.metrics import score
from leakscope.registry import attack_from_spec
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.types import LocalTraining


def attack_timed(
    *,
    attack: str,
    data: str,
    indices: Sequence[Sequence[int]],
    model: Mapping[str, Any],
    local: Mapping[str, Any],
    scenario: str,
    seed: int,
) -> CallValues:
    """PSNR and SSIM, one unit for the batch, and the median processor time of a step of the attack.

    What comes before the first step and behind the last is left out of the time: it does not grow with the steps.
    """
    batch = ls.data.load(data, split="test", indices=[place for one in indices for place in one])
    network = build_network(model, data, batch)
    update = ls.share(network, batch, local=LocalTraining(**local), seed=seed)
    seen = ls.observe(network, update, scenario=scenario, truth=batch)
    marks: list[float] = []

    def watch(_step: int, _images: Tensor, _distances: Tensor) -> None:
        marks.append(time.process_time())

    found = attack_from_spec(attack).reconstruct(seen, seed, watch=watch, diagnosing=False)
    scores = score(found, batch)
    return CallValues(
        {
            "psnr": [scores.psnr.tolist()],
            "ssim": [scores.metrics["ssim"].tolist()],
            "step_seconds": median_step(marks),
        },
        notes=(f"status: {found.status}", *found.notes),
    )


def median_step(marks: Sequence[float]) -> float:
    """Median of the times between marks.

    Example:
        >>> median_step([5.0, 6.0, 8.0, 9.0])
        1.0
    """
    return median(after - before for before, after in pairwise(marks))
