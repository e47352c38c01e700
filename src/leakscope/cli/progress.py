"""The steps of an attack, counted while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from leakscope.attack import Attack, Watch
from leakscope.progress import Progress


@contextmanager
def count_steps(progress: Progress, attack: Attack) -> Iterator[Watch | None]:
    """Yield what `attack.reconstruct(watch=…)` takes to show its steps; None for a closed form, which has none."""
    total = attack.effort.evaluations
    if total is None:
        yield None
        return
    with progress.count(attack.name, total) as counter:

        def watch(step: int, _inputs: Tensor, distances: Tensor) -> None:
            counter.update(step + 1, lambda: f"distance {float(distances.min()):.3g}")

        yield watch
