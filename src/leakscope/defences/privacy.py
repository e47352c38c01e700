"""From noise and sampling to what is proven: the guarantees of the defences that are differentially private."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from leakscope.defence import Guarantee
from leakscope.defences.accounting import fixed_batch_curve, fixed_batch_epsilon, gaussian_epsilon
from leakscope.defences.reconstruction import PRIORS, divergence_success, gaussian_success, private_success
from leakscope.errors import UsageError, suggest
from leakscope.types import LocalTraining

Sampling = Literal["fixed-batch", "passes"]
# What the samplers of leakscope's clients are, in words.
SAMPLINGS = {
    "fixed-batch": "every step draws a batch of fixed size without replacement",
    "passes": "examples are dealt out in passes, shuffled or not; sampling is not counted on",
}
NEIGHBOURS = "neighbours differ in one {unit}, replaced by any other; their number is public"
IDEAL = "for ideal noise: leakscope's is seeded and of finite precision"


@dataclass(frozen=True)
class LocalRound:
    """What a client does with the batch of a round.

    Attributes:
        steps: local steps; 1 for a gradient.
        looks: in how many of them one example can be at most.
        least: examples of the smallest of them.
    """

    steps: int
    looks: int
    least: int

    @classmethod
    def of(cls, local: LocalTraining | None, size: int) -> LocalRound:
        """A round on `size` examples."""
        if local is None:
            return cls(1, 1, size)
        # An unknown order stands for all: every pass has each example at most once, and the first one always.
        order = local.order(size)
        seen = Counter(place for step in order for place in step)
        return cls(len(order), max(seen.values()), min(len(step) for step in order))


def guarantee_examples(
    multiplier: float,
    *,
    sampling: Sampling,
    delta: float,
    examples: int,
    batch_size: int,
    steps: int,
    local: LocalTraining | None = None,
) -> Guarantee:
    """What noise of `multiplier` times the clipping norm, on the *sum* of a step, proves of single examples.

    The number of examples is in every update, so neighbours have the same number: one example is replaced, which moves
    the sum of clipped gradients by up to twice the norm. With `local` a step is a round, and noise is added in
    every local step of it.
    """
    size = min(batch_size, examples)
    done = LocalRound.of(local, size)
    rate = size / examples
    return _guarantee(multiplier, sampling=sampling, delta=delta, rate=rate, rounds=steps, done=done, unit="example")


def guarantee_clients(multiplier: float, *, delta: float, rounds: int) -> Guarantee:
    """What noise of `multiplier` times the clipping norm, added by each client, proves of all examples of a client.

    The server sees every client's own update in every round: nothing is gained by sampling or by adding up.
    """
    once = LocalRound(1, 1, 1)
    return _guarantee(multiplier, sampling="passes", delta=delta, rate=1.0, rounds=rounds, done=once, unit="client")


def example_epsilon(
    multiplier: float, *, sampling: Sampling, delta: float, rate: float, steps: int, looks: int = 1
) -> float:
    """ε at example level of noise of `multiplier` times the clipping norm on the sum of a step.

    Where steps are rounds of local steps, an example of a round's batch is in up to `looks` of them.
    """
    # Over the sensitivity, which is twice the norm.
    halved = multiplier / 2
    if sampling == "fixed-batch":
        return fixed_batch_epsilon(halved, rate=rate, steps=steps, delta=delta, looks=looks)
    return gaussian_epsilon(halved, steps=looks * count_passes(rate=rate, steps=steps), delta=delta)


def count_passes(*, rate: float, steps: int) -> int:
    """In how many steps one example can be at most, where examples are dealt out in passes.

    ⌊1/rate⌋ whole batches make a pass; fewer than all examples may be in one, and none is in a pass twice.
    """
    # 1 / 0.1 and its like must not fall below the whole number that they are.
    return math.ceil(steps / max(1, math.floor(1 / rate + 1e-9)))


def check_sampling(defence: str, sampling: str) -> None:
    """Refuse what is not a sampler of leakscope's clients: ε of another sampler would be too small."""
    if sampling == "poisson":
        raise UsageError(
            f"{defence} cannot count on Poisson sampling: clients here draw batches of fixed size, for which "
            "its ε is too small; use sampling=fixed-batch (leakscope.defences.accounting.poisson_epsilon has the other)"
        )
    if sampling not in SAMPLINGS:
        raise UsageError(
            f"{defence} has no accountant for sampling {sampling!r}.{suggest(str(sampling), SAMPLINGS)} "
            "Shuffled epochs are passes; weighted samplers have no ε here"
        )


def _guarantee(
    multiplier: float,
    *,
    sampling: Sampling,
    delta: float,
    rate: float,
    rounds: int,
    done: LocalRound,
    unit: Literal["example", "client"],
) -> Guarantee:
    looks = done.looks
    epsilon = example_epsilon(multiplier, sampling=sampling, delta=delta, rate=rate, steps=rounds, looks=looks)
    often = looks * (rounds if sampling == "fixed-batch" else count_passes(rate=rate, steps=rounds))
    divergences: Mapping[float, float] = {}
    if sampling == "fixed-batch" and multiplier:
        divergences = fixed_batch_curve(multiplier / 2, rate=rate, steps=rounds, looks=looks)
    how = "every client adds its noise itself (local)" if unit == "client" else SAMPLINGS[sampling]
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        sampling_rate=rate,
        steps=rounds * done.steps,
        local_steps=done.steps,
        noise_multiplier=multiplier / 2,
        reconstruction={
            prior: _success(prior, epsilon=epsilon, delta=delta, mu=_shift(multiplier, often), divergences=divergences)
            for prior in PRIORS
        },
        assumes=f"{how}; {NEIGHBOURS.format(unit=unit)}; {IDEAL}",
    )


def _shift(multiplier: float, steps: int) -> float:
    return math.sqrt(steps) / multiplier if multiplier else math.inf


def _success(prior: float, *, epsilon: float, delta: float, mu: float, divergences: Mapping[float, float]) -> float:
    """The smallest of all bounds that hold."""
    found = [gaussian_success(prior, mu=mu), private_success(prior, epsilon=epsilon, delta=delta)]
    found += [divergence_success(prior, divergences=divergences)] if divergences else []
    return min(found)
