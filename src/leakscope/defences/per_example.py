"""What defences that clip every example share: the clipping, the sampling, and the attacker who knows."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakscope.attack import Attack
from leakscope.defence import Defence
from leakscope.defences.accounting import calibrate
from leakscope.defences.privacy import Sampling, check_sampling, example_epsilon
from leakscope.errors import UsageError
from leakscope.matching.distances import Distance, Shortened
from leakscope.matching.recipe import Recipe
from leakscope.tensors import map_tensors
from leakscope.types import Tensors

DELTA = 1e-5


@dataclass(frozen=True)
class PerExample(Defence):
    """Clips the gradient of every example to `norm` and adds Gaussian noise in proportion to it.

    Attributes:
        norm: bound on the norm of an example's gradient over all tensors; infinite for none.
        noise_multiplier: standard deviation of the noise over `norm`.
        delta: δ of the guarantee.
        sampling: how examples come into a step.
    """

    norm: float
    noise_multiplier: float
    delta: float
    sampling: Sampling
    name: str
    paper: str

    # Under noise an exact match means nothing: the attack with the strong prior on images does best.
    strong_attacks = ("inverting-gradients:tv=1.0",)

    def __post_init__(self) -> None:
        check_noise(self.name, norm=self.norm, noise_multiplier=self.noise_multiplier, delta=self.delta)
        check_sampling(self.name, self.sampling)

    @property
    def scale(self) -> float:
        """Standard deviation of one draw of the noise."""
        return self.noise_multiplier * self.norm if self.noise_multiplier else 0.0

    def adapt(self, attack: Attack) -> Attack:
        """The attacker knows the variance, that lengths were cut, and that the noise of every round is drawn afresh."""
        return attack.revised(self._tell)

    @abstractmethod
    def revise(self, recipe: Recipe) -> Recipe:
        """The recipe of someone who knows the variance."""

    def _tell(self, recipe: Recipe) -> Recipe:
        joined = recipe.joins_rounds or self.noise_multiplier > 0
        return self.revise(replace(recipe, distance=self._cut(recipe.distance), joins_rounds=joined))

    def _cut(self, distance: Distance) -> Distance:
        return distance if math.isinf(self.norm) else undo_cut(distance)


def clip_examples(gradients: Tensors, norm: float) -> dict[str, Tensor]:
    """Scale the gradient of every example, name → [n, …], to at most `norm` over all tensors.

    One that is not finite counts for nothing: no factor could bound it.
    """
    squares = torch.stack([value.flatten(1).square().sum(1) for value in gradients.values()])
    lengths = squares.sum(0).sqrt()
    factor = (norm / lengths).clamp_max(1.0)
    kept = lengths.isfinite()

    def scale(value: Tensor) -> Tensor:
        shape = (-1, *[1] * (value.ndim - 1))
        return torch.where(kept.reshape(shape), value * factor.reshape(shape), torch.zeros_like(value))

    return map_tensors(scale, gradients)


def undo_cut(distance: Distance) -> Distance:
    """The distance of someone who knows that gradients were cut, to which length noise may hide."""
    return distance if distance.is_scale_free else Shortened(distance)


def check_noise(name: str, *, norm: float, noise_multiplier: float, delta: float) -> None:
    """Refuse numbers that cannot be meant."""
    if not norm > 0:
        raise UsageError(f"{name} needs norm > 0, got {norm}")
    if not 0 <= noise_multiplier < math.inf:
        raise UsageError(f"{name} needs a finite noise_multiplier ≥ 0, got {noise_multiplier}")
    if math.isinf(norm) and noise_multiplier:
        raise UsageError(f"{name} cannot scale noise to an infinite norm; give norm, or noise_multiplier=0")
    if not 0 < delta < 1:
        raise UsageError(f"{name} needs 0 < delta < 1, got {delta}; usual is less than one over the examples")


def choose_multiplier(
    name: str,
    noise_multiplier: float | None,
    *,
    epsilon: float | None,
    delta: float,
    steps: int | None,
    sampling_rate: float | None,
    sampling: Sampling,
    usual: float,
) -> float:
    """The multiplier that was given, or the least one whose ε over `steps` at `sampling_rate` is at most `epsilon`."""
    check_sampling(name, sampling)
    told = {"steps": steps, "sampling_rate": sampling_rate}
    if epsilon is None:
        if unused := [option for option, value in told.items() if value is not None]:
            raise UsageError(
                f"{name}: {unused[0]} is there to find the noise for epsilon; give epsilon too, or drop it"
            )
        return usual if noise_multiplier is None else noise_multiplier
    if noise_multiplier is not None:
        raise UsageError(f"{name}: epsilon decides noise_multiplier; give one of the two")
    if steps is None or sampling_rate is None:
        raise UsageError(
            f"{name}: epsilon={epsilon} needs steps (in all) and sampling_rate (batch size over a client's examples)"
        )
    if not 0 < sampling_rate <= 1:
        raise UsageError(f"{name} needs 0 < sampling_rate ≤ 1, got {sampling_rate}")
    return calibrate(
        epsilon,
        lambda chosen: example_epsilon(chosen, sampling=sampling, delta=delta, rate=sampling_rate, steps=steps),
    )
