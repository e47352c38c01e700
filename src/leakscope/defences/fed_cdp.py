"""Fed-CDP: every example's gradient clipped and disturbed by noise of its own, the bound decaying if asked."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from leakscope import rng as random
from leakscope.defence import ClientHooks, Guarantee, StepContext
from leakscope.defences.per_example import DELTA, PerExample, clip_examples
from leakscope.defences.privacy import LocalRound, Sampling, guarantee_examples
from leakscope.errors import UsageError
from leakscope.matching.recipe import Recipe
from leakscope.types import LocalTraining

PAPER = "Wei et al.: Gradient-Leakage Resilient Federated Learning, ICDCS 2021"


@dataclass(frozen=True)
class FedCDP(PerExample):
    """The mean over examples of clip(gᵢ) + N(0, (noise_multiplier · C)²), C from `norm` down to `final_norm`.

    The noises are independent: that of the mean of n examples has standard deviation noise_multiplier · C / √n.
    """

    name: str = "fed-cdp"
    paper: str = PAPER
    final_norm: float | None = None
    decay_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        last = self.norm if self.final_norm is None else self.final_norm
        # A bound that rises would be more noise than the attacker is told of.
        if not 0 < last <= self.norm or self.decay_steps < 1:
            raise UsageError(
                f"fed-cdp needs 0 < final_norm ≤ norm and decay_steps ≥ 1, got final_norm={self.final_norm}, "
                f"norm={self.norm}, decay_steps={self.decay_steps}"
            )

    def hooks(self) -> ClientHooks:
        """Clip and disturb single examples."""
        return ClientHooks(example_gradients=self._disturb)

    def bound(self, step: int) -> float:
        """The clipping norm of a local step, from 0."""
        if self.final_norm is None:
            return self.norm
        return self.norm + (self.final_norm - self.norm) * min(1.0, step / self.decay_steps)

    def guarantee(self, *, examples: int, batch_size: int, steps: int, local: LocalTraining | None = None) -> Guarantee:
        """What is proven of single examples: the noises of a batch of n add up to √n of one on its sum."""
        size = min(batch_size, examples)
        # The last batch of a pass may be smaller, and has less noise on its sum; so may that of local steps.
        last = size if self.sampling == "fixed-batch" else examples % size or size
        least = min(LocalRound.of(local, one).least for one in (size, last))
        return guarantee_examples(
            self.noise_multiplier * math.sqrt(least),
            sampling=self.sampling,
            delta=self.delta,
            examples=examples,
            batch_size=batch_size,
            steps=steps,
            local=local,
        )

    def revise(self, recipe: Recipe) -> Recipe:
        """The noise is on every example; of a decaying bound the attacker takes the last, which is the least noise."""
        scale = self.scale if self.final_norm is None else self.noise_multiplier * self.final_norm
        return replace(recipe, example_noise=recipe.example_noise + scale**2)

    def _disturb(self, gradients: dict[str, Tensor], context: StepContext) -> dict[str, Tensor]:
        bound = self.bound(context.step)
        clipped = clip_examples(gradients, bound)
        if not self.noise_multiplier:
            return clipped
        deviation = self.noise_multiplier * bound
        return {name: value + deviation * random.normal_like(value, context.rng) for name, value in clipped.items()}


def fed_cdp(
    norm: float = 4.0,
    noise_multiplier: float = 6.0,
    *,
    final_norm: float | None = None,
    decay_steps: int = 1,
    delta: float = DELTA,
    sampling: Sampling = "fixed-batch",
) -> FedCDP:
    """Clip every example's gradient to `norm` and add noise of `noise_multiplier` · norm to each.

    With `final_norm` the bound falls to it over `decay_steps` local steps.
    """
    return FedCDP(norm, noise_multiplier, delta, sampling, final_norm=final_norm, decay_steps=decay_steps)
