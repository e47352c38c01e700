"""GRNN's result, bettered by reading the network backwards through its max pooling; no part of the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from leakscope.attack import Effort, Watch
from leakscope.attacks.closed.pooling import read_pooled
from leakscope.attacks.grnn import PAPER, grnn
from leakscope.errors import UnsuitableError
from leakscope.matching.wrapper import MatchingWrapper
from leakscope.option_ranges import check_attack_option
from leakscope.types import Observation, Reconstruction, Status

# A reading that does not explain the update is tried once more, by the other way.
_GRADIENT_FROM = (0.2, 0.5)


@dataclass(frozen=True)
class RefinedGrnn(MatchingWrapper):
    """The generator first, for labels and a picture; then the network is read backwards through its max pooling.

    The second picture is kept where it explains the update better, by the same distance; else, and where the network
    or the update does not fit, the generator's stays, and a note says why. The reading does not start from the
    generator's picture: what it finds is owed to the layers and to a general notion of smoothness.
    """

    passes: int = 20
    name: str = "grnn-refined"
    paper: str = PAPER

    def __post_init__(self) -> None:
        check_attack_option(self.name, "passes", self.passes)

    @property
    def effort(self) -> Effort:
        """That of the generator, which one start is enough for: the reading does not depend on it."""
        return replace(self.search.effort, restarts=None)

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        """Train the generator, read the layers, return what explains the update better."""
        found = self.search.run_unjudged(seen, seed, watch=watch)
        losses: list[str] = []
        for late in _GRADIENT_FROM:
            try:
                inputs = read_pooled(seen, seed, passes=self.passes, gradient_from=late)
            except UnsuitableError as error:
                return replace(found, notes=(*found.notes, f"not refined: {error}"))
            # The generator's soft label is certain in the end; an exact picture deserves an exact one.
            read = replace(found, inputs=inputs, target_probabilities=None, status=Status.OK)
            loss = self.evaluate(seen, read)
            if math.isfinite(loss) and not loss >= found.loss:
                notes = (*found.notes, "refined: read backwards through the max pooling")
                return replace(read, loss=loss, history=(*found.history, loss), notes=notes)
            losses.append(f"{loss:.3g}")
        notes = (*found.notes, f"not refined: reading through max pooling came to worse matches, {', '.join(losses)}")
        return replace(found, notes=notes)


def refined_grnn(*, steps: int = 400, passes: int = 20, num_examples: int | None = None) -> RefinedGrnn:
    """GRNN's generator for `steps` iterations, then `passes` over the first layer's windows; no part of the paper."""
    return RefinedGrnn(grnn(steps=steps, num_examples=num_examples), passes)
