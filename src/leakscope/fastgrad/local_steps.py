"""Local training without a second-order graph: what it makes of the weights, and its derivative in the pictures.

A client runs W_{t+1} = W_t − r_t·g_t with g_t = ∇L(W_t; x_t) and shares Δ = W_T − W_0; what is compared is c·Δ. Given
v = ∂D/∂(cΔ) the steps are gone through backwards, from λ_T = c·v on:

    ∂D/∂x_t += d/dε ∇ₓL(x_t; W_t − εr_t·λ_{t+1})        λ_t = λ_{t+1} + d/dε g_t(W_t − εr_t·λ_{t+1})

Both derivatives come from one second pass through the network of step t, whose weights, and so its masks and maxima,
are those that the steps before have left. The first step needs the left one only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from leakscope.fastgrad.program import FirstPass, Program, SecondPass


@dataclass(frozen=True)
class TakenStep:
    """One local step: the network it ran, the places of its examples, its rate, and its first pass."""

    network: Program
    places: Tensor
    rate: float
    first: FirstPass


@dataclass(frozen=True)
class Trajectory:
    """All steps in order; `gradients` is c·Δ, by name."""

    gradients: dict[str, Tensor]
    inputs: Tensor = field(repr=False)
    targets: Tensor = field(repr=False)
    steps: list[TakenStep] = field(repr=False)


@dataclass(frozen=True)
class LocalProgram:
    """A compiled network with the steps of plain SGD it is trained by; used as a `Program` is.

    Attributes:
        network: at the weights W_0.
        order: positions of the examples of every step.
        rates: the rate of every step.
        factor: c, from the change of the weights to what is compared.
    """

    network: Program
    order: tuple[tuple[int, ...], ...]
    rates: tuple[float, ...]
    factor: float

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that move."""
        return self.network.names

    @cached_property
    def _second_passes(self) -> tuple[SecondPass, ...]:
        """One for each step: how long a difference suits it varies from step to step, and hardly during an attack."""
        return tuple(self.network.second.fresh() for _ in self.order)

    @torch.no_grad()
    def gradients(self, inputs: Tensor, targets: Tensor) -> Trajectory:
        """Train every group on its own inputs [G, n, …]; groups share W_0 and nothing else."""
        offset: dict[str, Tensor] = {}
        steps: list[TakenStep] = []
        for chosen, rate, second in zip(self.order, self.rates, self._second_passes, strict=True):
            places = torch.tensor(chosen, device=inputs.device)
            network = replace(self.network.at(offset), second=second)
            # Nothing comes before the first step that its gradient could bear on.
            first = network.gradients(inputs[:, places], targets[:, places], curved=bool(steps))
            offset = _add(offset, first.gradients, -rate)
            first.gradients = {}
            steps.append(TakenStep(network, places, rate, first))
        return Trajectory(_scale(offset, self.factor), inputs, targets, steps)

    @torch.no_grad()
    def pullback(self, first: Trajectory, direction: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Derivatives of Σ_G ⟨direction_G, gradients_G⟩ in the inputs and in soft targets."""
        to_inputs = torch.zeros_like(first.inputs)
        to_targets = torch.zeros_like(first.targets) if first.targets.is_floating_point() else None
        adjoint = _scale(direction, self.factor)
        for step in reversed(first.steps):
            found = step.network.derive(step.first, _scale(adjoint, -step.rate))
            # An example that several steps use is one variable: their parts add up.
            to_inputs.index_add_(1, step.places, found.inputs)
            by_target = step.network.pull_to_targets(step.first, found)
            if to_targets is not None and by_target is not None:
                to_targets.index_add_(1, step.places, by_target)
            adjoint = _add(adjoint, found.gradients, 1.0)
        return to_inputs, to_targets


def _scale(values: Mapping[str, Tensor], factor: float) -> dict[str, Tensor]:
    return {name: factor * value for name, value in values.items()}


def _add(left: Mapping[str, Tensor], right: Mapping[str, Tensor], factor: float) -> dict[str, Tensor]:
    """left + factor·right; a missing name stands for zero."""
    moved = {name: torch.add(left[name], v, alpha=factor) if name in left else factor * v for name, v in right.items()}
    return {**left, **moved}
