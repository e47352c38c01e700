"""Langevin noise on the steps of another optimiser.

x ← x + step + rate · noise · N(0, 1): the noise falls with the rate, so the run settles at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from leakscope import rng as random
from leakscope.matching.candidates.pixels import Variables
from leakscope.matching.optimisers.first_order import SGD, Adam, Evaluate, Optimiser, Project, State
from leakscope.networks import NetworkKind


@dataclass(frozen=True)
class Langevin(Optimiser):
    """`base` with Gaussian noise of `noise` times the rate of the moment added to "inputs" after each step."""

    base: Adam | SGD
    noise: float = 0.2
    seed: int = 0

    @property
    def lr(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the base."""
        return self.base.lr

    def seeded(self, seed: int) -> Langevin:
        """The same optimiser drawing from `seed`."""
        return replace(self, seed=seed)

    def evaluations(self, steps: int) -> int:
        """Those of the base."""
        return self.base.evaluations(steps)

    def least_steps(self, kind: NetworkKind) -> int:
        """Those of the base."""
        return self.base.least_steps(kind)

    def states(self, evaluate: Evaluate, start: Variables, *, steps: int, project: Project) -> Iterator[State]:
        """Run the base; noise is added before the projection, so that iterates stay valid."""
        step = 0

        def noisy(variables: Variables) -> Variables:
            nonlocal step
            rate = self.noise * self.base.lr * self.base.schedule(step, steps)
            if rate > 0 and "inputs" in variables:
                # A generator a step: what a group draws does not depend on how many run beside it.
                drawn = random.normal_like(variables["inputs"], random.generator(self.seed, "langevin", step))
                variables = {**variables, "inputs": torch.add(variables["inputs"], drawn, alpha=rate)}
            step += 1
            return project(variables)

        yield from self.base.states(evaluate, start, steps=steps, project=noisy)
