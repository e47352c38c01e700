"""DP-SGD: every example's gradient clipped, and Gaussian noise on their sum."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from leakscope import rng as random
from leakscope.defence import ClientHooks, Guarantee, StepContext
from leakscope.defences.per_example import DELTA, PerExample, choose_multiplier, clip_examples
from leakscope.defences.privacy import Sampling, guarantee_examples
from leakscope.matching.recipe import Recipe
from leakscope.types import LocalTraining

PAPER = "Abadi et al.: Deep Learning with Differential Privacy, CCS 2016"


@dataclass(frozen=True)
class DPSGD(PerExample):
    """(Σ clip(gᵢ) + N(0, (noise_multiplier · norm)²)) / n, in every local step."""

    name: str = "dp-sgd"
    paper: str = PAPER

    def hooks(self) -> ClientHooks:
        """Clip single examples, then disturb their mean once."""
        return ClientHooks(example_gradients=self._clip, gradient=self._disturb if self.noise_multiplier else None)

    def guarantee(self, *, examples: int, batch_size: int, steps: int, local: LocalTraining | None = None) -> Guarantee:
        """What is proven of single examples."""
        return guarantee_examples(
            self.noise_multiplier,
            sampling=self.sampling,
            delta=self.delta,
            examples=examples,
            batch_size=batch_size,
            steps=steps,
            local=local,
        )

    def revise(self, recipe: Recipe) -> Recipe:
        """The noise is on the sum of a step."""
        return replace(recipe, sum_noise=recipe.sum_noise + self.scale**2)

    def _clip(self, gradients: dict[str, Tensor], context: StepContext) -> dict[str, Tensor]:
        return clip_examples(gradients, self.norm)

    def _disturb(self, gradient: dict[str, Tensor], context: StepContext) -> dict[str, Tensor]:
        # The step's gradient is the mean by now, so the noise of the sum is divided too.
        deviation = self.scale / len(context.batch)
        return {name: value + deviation * random.normal_like(value, context.rng) for name, value in gradient.items()}


def dp_sgd(
    norm: float = 1.0,
    noise_multiplier: float | None = None,
    *,
    epsilon: float | None = None,
    delta: float = DELTA,
    steps: int | None = None,
    sampling_rate: float | None = None,
    sampling: Sampling = "fixed-batch",
) -> DPSGD:
    """Clip every example's gradient to `norm`, and add noise of `noise_multiplier` · norm to the sum of a step.

    The multiplier is 1 unless given, or found for `epsilon` over `steps` steps at `sampling_rate`.
    """
    multiplier = choose_multiplier(
        "dp-sgd",
        noise_multiplier,
        epsilon=epsilon,
        delta=delta,
        steps=steps,
        sampling_rate=sampling_rate,
        sampling=sampling,
        usual=1.0,
    )
    return DPSGD(norm, multiplier, delta, sampling)
