"""Progress of one attack: a bar with the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from torch import Tensor

from leakscope.matching.recipe import GradientMatching
from leakscope.types import Attack, Observation, Reconstruction

_LINE_EVERY = 10.0


@contextmanager
def watching(attack: Attack) -> Iterator[Callable[[Observation, int], Reconstruction]]:
    """Yield `attack.reconstruct` with its steps shown on standard error; a closed form shows nothing."""
    total = _length(attack)
    # Beyond the protocol: optimisation attacks let themselves be watched.
    watched: Callable[..., Reconstruction] = attack.reconstruct
    if total is None:
        yield attack.reconstruct
        return
    if not sys.stderr.isatty():
        yield partial(watched, watch=Lines(total))
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(attack.name, total=total)
        yield partial(watched, watch=lambda step, _images, _distance: bar.update(task, completed=step + 1))


def _length(attack: Attack) -> int | None:
    """Evaluations of the longest part of an attack that can be watched; None for a closed form."""
    if isinstance(attack, GradientMatching):
        return attack.optimiser.evaluations(attack.steps)
    steps = getattr(attack, "steps", None)
    watched = "watch" in inspect.signature(attack.reconstruct).parameters
    return steps if watched and isinstance(steps, int) else None


class Lines:
    """Prints how far an attack is, every ten seconds; never a pixel of what it found."""

    def __init__(self, total: int) -> None:
        """Count up to `total` evaluations."""
        self.total = total
        self.began = self.said = time.monotonic()

    def __call__(self, step: int, _images: Tensor, distance: Tensor) -> None:
        """Say where the attack is, when it is time to."""
        now = time.monotonic()
        if now - self.said < _LINE_EVERY:
            return
        self.said = now
        left = (now - self.began) / (step + 1) * (self.total - step - 1)
        print(
            f"[{step + 1}/{self.total}] distance {float(distance.min()):.3g}, at most {left:.0f} s left",
            file=sys.stderr,
        )
