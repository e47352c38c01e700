"""DP-FedAvg: the whole update of a client clipped and disturbed, so that all its examples together are protected."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Generator, Tensor, nn

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.defence import ClientHooks, Defence, Guarantee, StepContext
from leakscope.defences.accounting import calibrate, gaussian_epsilon
from leakscope.defences.per_example import DELTA, check_noise, undo_cut
from leakscope.defences.privacy import guarantee_clients
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.recipe import Recipe
from leakscope.tensors import all_finite, global_norm
from leakscope.types import LocalTraining, SharedUpdate

PAPER = "McMahan et al.: Learning Differentially Private Recurrent Language Models, ICLR 2018"


@dataclass(frozen=True)
class DPFedAvg(Defence):
    """u · min(1, norm/‖u‖) + N(0, (noise_multiplier · norm)²) of the finished update u, gradient or delta.

    Every client adds its noise itself, so that it holds against the server; in the paper the server adds it.
    """

    norm: float
    noise_multiplier: float
    delta: float = DELTA
    name: str = "dp-fedavg"
    paper: str = PAPER

    # Under noise an exact match means nothing: the attack with the strong prior on images does best.
    strong_attacks = ("inverting-gradients:tv=1.0",)

    def __post_init__(self) -> None:
        check_noise(self.name, norm=self.norm, noise_multiplier=self.noise_multiplier, delta=self.delta)

    def hooks(self) -> ClientHooks:
        """Act on the finished update, after a look at the network."""
        return ClientHooks(gradient=_refuse_statistics, update=self._disturb)

    def acts_in_training(self) -> bool:
        """No: its look at the network only refuses; of a finished update it refuses the buffers."""
        return False

    def guarantee(self, *, examples: int, batch_size: int, steps: int, local: LocalTraining | None = None) -> Guarantee:
        """What is proven of all examples of a client; every step is a round, however the client trains in it."""
        return guarantee_clients(self.noise_multiplier, delta=self.delta, rounds=steps)

    def adapt(self, attack: Attack) -> Attack:
        """The attacker knows the variance, that the length was cut, and that every round draws its noise afresh."""
        return attack.revised(self._revise)

    def _revise(self, recipe: Recipe) -> Recipe:
        distance = recipe.distance if math.isinf(self.norm) else undo_cut(recipe.distance)
        joined = recipe.joins_rounds or self.noise_multiplier > 0
        return replace(recipe, distance=distance, noise=recipe.noise + self._scale**2, joins_rounds=joined)

    @property
    def _scale(self) -> float:
        return self.noise_multiplier * self.norm if self.noise_multiplier else 0.0

    def _disturb(self, update: SharedUpdate, rng: Generator) -> SharedUpdate:
        if update.buffers:
            raise UnsuitableError(
                f"dp-fedavg cannot bound the buffers of an update, got {', '.join(list(update.buffers)[:3])}; "
                "share parameters only"
            )
        length = global_norm(update.tensors)
        # No factor could bound an update that is not finite; it counts for nothing.
        kept = all_finite(update.tensors) and bool(length.isfinite())
        factor = float((self.norm / length).clamp_max(1.0)) if kept else 0.0

        def change(value: Tensor) -> Tensor:
            cut = value * factor if kept else value.new_zeros(value.shape)
            return cut + self._scale * random.normal_like(value, rng) if self._scale else cut

        return replace(update, tensors={name: change(value) for name, value in update.tensors.items()})


def _refuse_statistics(gradient: dict[str, Tensor], context: StepContext) -> dict[str, Tensor]:
    """Statistics of the batch would reach the server without noise, in the buffers of the network."""
    for name, module in context.model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            raise UnsuitableError(
                f"batch normalisation {name!r} keeps statistics of the examples, which no noise of dp-fedavg covers; "
                "put it in evaluation mode with stored statistics, or use group normalisation"
            )
    return gradient


def dp_fedavg(
    norm: float = 1.0,
    noise_multiplier: float | None = None,
    *,
    epsilon: float | None = None,
    delta: float = DELTA,
    rounds: int | None = None,
) -> DPFedAvg:
    """Clip a client's whole update to `norm` and add noise of `noise_multiplier` · norm, at the client.

    The multiplier is 1 unless given, or found for `epsilon` over `rounds` rounds.
    """
    if epsilon is None:
        if rounds is not None:
            raise UsageError("dp-fedavg: rounds is there to find the noise for epsilon; give epsilon too, or drop it")
        return DPFedAvg(norm, 1.0 if noise_multiplier is None else noise_multiplier, delta)
    if noise_multiplier is not None or rounds is None:
        raise UsageError(f"dp-fedavg: epsilon={epsilon} decides noise_multiplier and needs rounds; give those two")
    return DPFedAvg(norm, calibrate(epsilon, lambda m: gaussian_epsilon(m / 2, steps=rounds, delta=delta)), delta)
