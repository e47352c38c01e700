"""What an optimisation attack does: one value on each axis."""

from __future__ import annotations

from dataclasses import dataclass, replace

from leakscope.errors import UnsuitableError
from leakscope.matching.candidates import Candidate
from leakscope.matching.distances import Denoised, Direction, Distance
from leakscope.matching.labels import LabelRule
from leakscope.matching.optimisers import Optimiser
from leakscope.matching.penalties import Penalty
from leakscope.matching.problem import (
    Selection,
)
from leakscope.matching.replays import Replay, scale_known
from leakscope.matching.replays.replay import count_local_steps, gradient_factor
from leakscope.matching.steadiness import SteadyLayers
from leakscope.types import Observation


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What an optimisation attack does: one value on each axis.

    Attributes:
        labels: where the targets of candidates come from.
        candidate: what is optimised.
        replay: how the client is thought to have computed its update.
        distance: how far a candidate's update is from the observed one.
        penalties: what is known of natural inputs.
        optimiser: how candidates move.
        noise: variance per shared entry that the attacker reckons with; independent noises add up.
        relative_noise: the same in units of the variance of each tensor without it.
        joins_rounds: whether updates of several rounds are matched together, as made from the same examples.
        draws_anew: whether what the client drew for one update, and drew anew for the next, is searched for beside the
            pictures: no one value of it explains several rounds, which are then taken by themselves.
        sum_noise: the same for noise on the sum of the gradients of a local step.
        example_noise: the same for noise on the gradient of every single example.
        only: names of the tensors that are matched; None for all that were shared.
        leave_out: which of them are not matched, as what was observed tells.
        unknowns: whether tensors that the network declares unknown are searched for, beside the candidate.
        steady: which layers a search compares, of those that are matched; None for all. What a result has to explain
            is all that is matched.
    """

    labels: LabelRule
    candidate: Candidate
    replay: Replay
    distance: Distance
    penalties: tuple[Penalty, ...] = ()
    optimiser: Optimiser
    noise: float = 0.0
    relative_noise: float = 0.0
    joins_rounds: bool = False
    draws_anew: bool = False
    sum_noise: float = 0.0
    example_noise: float = 0.0
    only: tuple[str, ...] | None = None
    leave_out: tuple[Selection, ...] = ()
    unknowns: bool = False
    steady: SteadyLayers | None = None

    @property
    def matches_rounds(self) -> bool:
        """Whether rounds are to be joined, and one candidate can explain them all."""
        return self.joins_rounds and not self.draws_anew

    def distance_to(self, seen: Observation) -> Distance:
        """The distance as it applies to this update.

        By direction where the scale of a delta is unknown. Weighing by noise is outermost: it compares the noise's
        variance with the shared numbers as they came, in units of the replay.
        """
        bound = self.distance.bound(seen)
        if self.replay.local(seen) is None and not scale_known(seen) and not bound.is_scale_free:
            bound = Direction(bound)
        variance = self.noise * gradient_factor(seen) ** 2 + self._variance_of_steps(seen)
        if max(variance, self.relative_noise) == 0:
            return bound
        return Denoised(bound, variance, self.relative_noise, weighs_tensors=not self.penalties)

    @property
    def is_noisy(self) -> bool:
        """Whether the attacker reckons with noise of any kind."""
        return max(self.noise, self.relative_noise, self.sum_noise, self.example_noise) > 0

    def _variance_of_steps(self, seen: Observation) -> float:
        """Variance of a mean gradient whose k local steps on n examples each were disturbed: (s/n² + e/n) / k.

        Exact where all steps count alike; zero, and so no use made of it, where n or k is not known.
        """
        steps, size = count_local_steps(seen), seen.num_examples
        if seen.local is not None and seen.update.kind == "delta":
            size = min(seen.local.batch_size, size or seen.local.batch_size)
        if steps is None or size is None or not scale_known(seen):
            return 0.0
        return (self.sum_noise / size**2 + self.example_noise / size) / steps

    def matched(self, seen: Observation) -> Observation:
        """`seen` with only the tensors that are matched."""
        if self.only is None and not self.leave_out:
            return seen
        shared = seen.update.tensors
        left_out = [name for one in self.leave_out for name in one.names(seen)]
        chosen = [name for name in (self.only or shared) if name not in left_out]
        if not chosen:
            raise UnsuitableError(
                f"nothing is left to match: {', '.join(left_out)} was changed by a defence, and no other tensor was "
                "shared; run the attack without knowing the defence"
            )
        if missing := [name for name in chosen if name not in shared]:
            raise UnsuitableError(
                f"{missing[0]!r} is to be matched but was not shared; choose among {', '.join(shared)}"
            )
        return replace(seen, update=replace(seen.update, tensors={name: shared[name] for name in chosen}))

    def narrowed(self, seen: Observation, *, steps: int) -> Recipe:
        """The recipe of a search of so many steps: of the matched tensors the steady ones, at the rate they allow."""
        # What noise hides in one number others tell: who reckons with it compares all there are.
        if self.steady is None or self.is_noisy:
            return replace(self, steady=None)
        matched = self.matched(seen).update.tensors
        unsteady = set(self.steady.unsteady(seen))
        kept = tuple(name for name in matched if name not in unsteady)
        if not kept or len(kept) == len(matched):
            return replace(self, steady=None)
        optimiser = self.optimiser.hastened(self.steady.factor_of_rate(steps))
        return replace(self, steady=None, only=kept, leave_out=(), optimiser=optimiser)
