"""Coarse first, then fine: two optimisers in turn, and the pair that leakscope's own schedule uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leakscope.matching.optimisers import Adam, Evaluate, Optimiser, Project, State, seeded
from leakscope.matching.schedules import Ramp, linear
from leakscope.matching.variables import Variables

_COARSE_SHARE = 0.35


@dataclass(frozen=True)
class InTurn:
    """`first` for a `share` of the steps, then `then` from where it stood, with a fresh memory."""

    first: Optimiser
    then: Optimiser
    share: float

    def seeded(self, seed: int) -> InTurn:
        """Both parts draw from `seed`."""
        return InTurn(seeded(self.first, seed), seeded(self.then, seed), self.share)

    def evaluations(self, steps: int) -> int:
        """Those of both parts."""
        early = self._early(steps)
        return self.first.evaluations(early) + self.then.evaluations(steps - early)

    def states(self, evaluate: Evaluate, start: Variables, *, steps: int, project: Project) -> Iterator[State]:
        """Run both; step numbers go on."""
        early, variables, done = self._early(steps), start, 0
        if early:
            for state in self.first.states(evaluate, start, steps=early, project=project):
                variables, done = state.variables, state.step + 1
                yield state
        for state in self.then.states(evaluate, variables, steps=steps - early, project=project):
            yield State(done + state.step, state.variables, state.evaluation, state.active)

    def _early(self, steps: int) -> int:
        return min(steps - 1, round(self.share * steps))


def accelerated(lr: float = 0.4) -> InTurn:
    """Signed steps along a blurred gradient, then plain Adam; the rate falls linearly throughout.

    Signed, blurred steps move large dim areas as fast as sharp edges: they find brightness and
    layout on networks whose matching gradient says little about either. Plain Adam then
    sharpens.
    """
    left = 1 - _COARSE_SHARE
    coarse = Adam(lr=lr, signed=True, schedule=Ramp(1.0, left), smooth=3 / 32)
    return InTurn(coarse, Adam(lr=lr * left, schedule=linear), _COARSE_SHARE)
