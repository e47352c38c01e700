"""Axis 6: how candidates move. An optimiser yields states; each holds an iterate and *its* loss.

Variables carry a leading dimension of groups that never mix, so restarts and victims run in
lockstep. The closing update of a run is not evaluated, so it is never returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from leakscope.matching.candidates.pixels import Variables
from leakscope.matching.optimisers.schedules import Schedule, constant
from leakscope.networks import NetworkKind


@dataclass(frozen=True)
class Evaluation:
    """Matching distance [groups] and the gradient of the whole objective, by variable."""

    distance: Tensor
    gradient: Mapping[str, Tensor]


@dataclass(frozen=True)
class State:
    """An iterate with the evaluation that belongs to it; `active` groups still move."""

    step: int
    variables: Variables
    evaluation: Evaluation
    active: Tensor


# Signs are meant for pixels and label logits; a learned shift or a network's weights move plainly.
_PIXELWISE = ("inputs", "labels")


class Evaluate(Protocol):
    """The objective as an optimiser sees it."""

    def __call__(self, variables: Variables) -> Evaluation:
        """Distance and gradient at `variables`."""
        ...

    def measure(self, variables: Variables) -> Tensor:
        """Distance alone, cheaper."""
        ...


Project = Callable[[Variables], Variables]


class Optimiser(ABC):
    """Yields at most `steps` states, the first at `start`."""

    # The rate of the first step; 0 for a search that has none.
    lr: float = 0.0

    @abstractmethod
    def states(self, evaluate: Evaluate, start: Variables, *, steps: int, project: Project) -> Iterator[State]:
        """Run from `start`."""

    def evaluations(self, steps: int) -> int:
        """How many evaluations `steps` steps can take at most; one a step unless an optimiser says otherwise."""
        return steps

    def least_steps(self, kind: NetworkKind) -> int:
        """Steps below which a run on such a network has hardly begun, whatever distance it ended at."""
        return constant.least_steps(kind)

    def seeded(self, seed: int) -> Optimiser:
        """The same optimiser drawing from `seed`, where it draws random numbers of its own."""
        return self

    def fitted(self, parameters: int) -> Optimiser:
        """The same optimiser as it suits a network of so many parameters."""
        return self

    def hastened(self, factor: float) -> Optimiser:
        """The same optimiser at `factor` times its rate, where it has one."""
        return self


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam, optionally on the sign of the gradient of images.

    `rates` gives single variables a factor of their own, as a mapping or as pairs.
    """

    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.999)
    signed: bool = False
    schedule: Schedule = constant
    epsilon: float = 1e-8
    rates: Mapping[str, float] | tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        # Pairs in order, so that two optimisers with the same rates are equal and hash alike.
        object.__setattr__(self, "rates", tuple(sorted(dict(self.rates).items())))

    def least_steps(self, kind: NetworkKind) -> int:
        """That of the schedule."""
        return self.schedule.least_steps(kind)

    def hastened(self, factor: float) -> Adam:
        """Adam at `factor` times its rate."""
        return replace(self, lr=factor * self.lr)

    def states(self, evaluate: Evaluate, start: Variables, *, steps: int, project: Project) -> Iterator[State]:
        """Run Adam with bias correction."""
        first = {name: torch.zeros_like(value) for name, value in start.items()}
        second = {name: torch.zeros_like(value) for name, value in start.items()}
        variables, factors = start, dict(self.rates)
        for step in range(steps):
            found = evaluate(variables)
            active = torch.isfinite(found.distance)
            yield State(step, variables, found, active)
            moved: Variables = {}
            for name, value in variables.items():
                gradient = _usable(found.gradient[name], active)
                gradient = gradient.sign() if self.signed and name in _PIXELWISE else gradient
                first[name].lerp_(gradient, 1 - self.betas[0])
                second[name].mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
                rate = self.lr * self.schedule(step, steps) / (1 - self.betas[0] ** (step + 1)) * factors.get(name, 1.0)
                spread = (second[name] / (1 - self.betas[1] ** (step + 1))).sqrt_().add_(self.epsilon)
                moved[name] = value - rate * first[name] / spread
            variables = project(moved)


@dataclass(frozen=True)
class SGD(Optimiser):
    """Gradient descent with Nesterov momentum, optionally on the sign of the gradient."""

    lr: float = 0.01
    momentum: float = 0.9
    signed: bool = False
    schedule: Schedule = constant

    def least_steps(self, kind: NetworkKind) -> int:
        """That of the schedule."""
        return self.schedule.least_steps(kind)

    def states(self, evaluate: Evaluate, start: Variables, *, steps: int, project: Project) -> Iterator[State]:
        """Run SGD."""
        velocity = {name: torch.zeros_like(value) for name, value in start.items()}
        variables = start
        for step in range(steps):
            found = evaluate(variables)
            active = torch.isfinite(found.distance)
            yield State(step, variables, found, active)
            rate = self.lr * self.schedule(step, steps)
            moved: Variables = {}
            for name, value in variables.items():
                gradient = _usable(found.gradient[name], active)
                gradient = gradient.sign() if self.signed and name in _PIXELWISE else gradient
                # The first step has no past: velocity starts as the gradient itself.
                velocity[name] = gradient.clone() if step == 0 else self.momentum * velocity[name] + gradient
                moved[name] = value - rate * (gradient + self.momentum * velocity[name])
            variables = project(moved)


@dataclass(frozen=True)
class RMSprop(Optimiser):
    """Gradient over its running root mean square, with momentum: v ← μv + g/√E[g²]."""

    lr: float = 1e-4
    momentum: float = 0.99
    decay: float = 0.99
    schedule: Schedule = constant
    epsilon: float = 1e-8

    def least_steps(self, kind: NetworkKind) -> int:
        """A generator's weights come from nothing to a picture first; momentum of 0.99 then goes far in a step."""
        return kind.choose(100, 200, 300)

    def states(self, evaluate: Evaluate, start: Variables, *, steps: int, project: Project) -> Iterator[State]:
        """Run RMSprop."""
        squares = {name: torch.zeros_like(value) for name, value in start.items()}
        velocity = {name: torch.zeros_like(value) for name, value in start.items()}
        variables = start
        for step in range(steps):
            found = evaluate(variables)
            active = torch.isfinite(found.distance)
            yield State(step, variables, found, active)
            rate = self.lr * self.schedule(step, steps)
            moved: Variables = {}
            for name, value in variables.items():
                gradient = _usable(found.gradient[name], active)
                squares[name].mul_(self.decay).addcmul_(gradient, gradient, value=1 - self.decay)
                velocity[name].mul_(self.momentum).addcdiv_(gradient, squares[name].sqrt().add_(self.epsilon))
                moved[name] = value - rate * velocity[name]
            variables = project(moved)


def _usable(gradient: Tensor, active: Tensor) -> Tensor:
    """The gradient with dead groups stopped, so that one NaN never reaches another group."""
    mask = active.reshape(-1, *[1] * (gradient.ndim - 1))
    return torch.where(mask, gradient, torch.zeros_like(gradient)).nan_to_num(0.0, 0.0, 0.0)
