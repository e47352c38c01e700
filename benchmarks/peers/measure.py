"""What both workers measure, in the same way: clocks, snapshots, PSNR, memory.

Snapshots are copied inside the clock (microseconds) and judged after it has stopped.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor


@dataclass
class Recorder:
    """Copies of the iterate along the run, each with the time and the evaluations since the start.

    Every `every`-th iterate is kept, and the first: the copies must not weigh on the peak memory.
    """

    every: int = 5
    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)
    seen: int = 0
    marks: list[tuple[int, float, float]] = field(default_factory=list)
    iterates: list[Tensor] = field(default_factory=list)

    def elapsed(self) -> tuple[float, float]:
        """Wall and CPU seconds since the start."""
        return time.perf_counter() - self.wall, time.process_time() - self.cpu

    def snapshot(self, evaluations: int, iterate: Tensor) -> None:
        """Take note of an iterate that took `evaluations` evaluations of the objective so far."""
        self.seen += 1
        if self.seen == 1 or self.seen % self.every == 0:
            self.marks.append((evaluations, *self.elapsed()))
            self.iterates.append(iterate.detach().clone())

    def trajectory(self, truth: Tensor, to_pixels: Callable[[Tensor], Tensor]) -> list[dict[str, float]]:
        """Judge the kept iterates; call it when the clock no longer matters."""
        return [
            {"evaluations": count, "wall": wall, "cpu": cpu, "psnr": psnr(to_pixels(iterate), truth)}
            for (count, wall, cpu), iterate in zip(self.marks, self.iterates, strict=True)
        ]


def psnr(images: Tensor, truth: Tensor) -> float:
    """Mean over examples of 10·log10(1/MSE), pixels clamped to [0, 1], after optimal assignment."""
    made = images.detach().double().clamp(0, 1).flatten(1)
    true = truth.double().clamp(0, 1).flatten(1)
    errors = torch.stack([(made - row).square().mean(1) for row in true]).clamp_min(1e-12)
    if not bool(torch.isfinite(errors).all()):
        return float("nan")
    rows, columns = linear_sum_assignment(errors.numpy())
    return float(-10 * torch.log10(errors[rows, columns]).mean())


def peak_mb() -> float:
    """Highest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def single_thread() -> None:
    """Use one core: two workers of one thread beat one of two, so that is what is compared."""
    torch.set_num_threads(1)


def write(path: Path, **result: object) -> None:
    """Write one worker's result as JSON."""
    path.write_text(json.dumps(result, indent=1, default=_plain), encoding="utf-8")


def _plain(value: object) -> object:
    if isinstance(value, np.generic | Tensor):
        return value.tolist()
    raise TypeError(f"cannot write {type(value).__name__} as JSON")
