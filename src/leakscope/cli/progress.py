"""Progress of one attack: a bar with the time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from leakscope.attack import Attack, Watch
from leakscope.types import Knowledge, Observation, Reconstruction

_LINE_EVERY = 10.0


@contextmanager
def watching(attack: Attack) -> Iterator[Callable[[Observation, int], Reconstruction]]:
    """Yield `attack.reconstruct` with its steps shown on standard error; a closed form shows nothing."""
    total = attack.effort.evaluations
    if total is None:
        yield attack.reconstruct
        return
    if not sys.stderr.isatty():
        yield partial(attack.reconstruct, watch=Lines(total))
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(attack.name, total=total)
        yield partial(attack.reconstruct, watch=lambda step, _images, _distance: bar.update(task, completed=step + 1))


@dataclass(frozen=True)
class Shown(Attack):
    """An attack that shows its own steps and their time left while it runs."""

    attack: Attack

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the attack."""
        return self.attack.name

    @property
    def paper(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the attack."""
        return self.attack.paper

    def needs_of(self, seen: Observation) -> frozenset[Knowledge]:
        """What the attack needs."""
        return self.attack.needs_of(seen)

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """As the attack does."""
        return self.attack.evaluate(seen, reconstruction)

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        with watching(self.attack) as run:
            return run(seen, seed)


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
