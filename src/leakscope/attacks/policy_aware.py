"""The policy-aware attack: the translation module of the second ATS replication, and any policy beyond it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import nn

from leakscope import rng as random
from leakscope.errors import UnsuitableError, UsageError, suggest
from leakscope.matching.candidates import Pixels
from leakscope.matching.distances import Cosine
from leakscope.matching.engine import Watch
from leakscope.matching.facts import Fact
from leakscope.matching.labels import AsGranted
from leakscope.matching.optimisers import Adam, accelerated
from leakscope.matching.penalties import TotalVariation
from leakscope.matching.recipe import GradientMatching
from leakscope.matching.replays import AsKnown
from leakscope.matching.schedules import three_drops
from leakscope.matching.transformed import Transformed, variable
from leakscope.matching.transforms import TRANSFORMS, Transform
from leakscope.types import Knowledge, Observation, Reconstruction, SharedUpdate, Status

PAPER = (
    "Replication of Gao et al. (CVPR 2021) by the Linkerbrain team, ML Reproducibility Challenge 2021: "
    "attack with a learnable translation; here any differentiable transformation"
)

# A magnitude that is known is still off by interpolation and by a random crop of up to 4 of 32 pixels.
_SLACK = 0.13


@dataclass(frozen=True)
class PolicyAware:
    """Tries every sign of the policy's magnitudes for `probe` steps, then runs the best one in full.

    The choice is by matching distance: the truth plays no part.
    """

    recipe: GradientMatching
    hypotheses: tuple[tuple[Transform, ...], ...]
    probe: int

    @property
    def name(self) -> str:
        """Name in the registry."""
        return self.recipe.name

    @property
    def paper(self) -> str:
        """What is implemented."""
        return self.recipe.paper

    @property
    def needs(self) -> frozenset[Knowledge]:
        """As the recipe inside."""
        return self.recipe.needs

    @property
    def steps(self) -> int:
        """Steps of the full run."""
        return self.recipe.steps

    def with_steps(self, steps: int) -> PolicyAware:
        """The same attack with another length; probes stay in proportion."""
        return replace(self, recipe=replace(self.recipe, steps=steps), probe=max(1, min(self.probe, steps // 4)))

    def craft(self, model: nn.Module, history: Sequence[SharedUpdate] = ()) -> nn.Module:
        """Hand out the honest model."""
        return model

    def informed(self, fact: Fact) -> PolicyAware:
        """Also know what was done to the update."""
        return replace(self, recipe=self.recipe.informed(fact))

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The matching distance at a reconstruction."""
        return self.recipe.evaluate(seen, reconstruction)

    def reconstruct(self, seen: Observation, seed: int = 0, *, watch: Watch | None = None) -> Reconstruction:
        """Rebuild what the model saw."""
        if len(seen.input_shape) != 3:
            raise UnsuitableError(
                f"policy-aware transforms pictures [channels, height, width], got inputs {list(seen.input_shape)}; "
                "use inverting-gradients"
            )
        chosen, spent = self.hypotheses[0], 0
        if len(self.hypotheses) > 1:
            trials = []
            for number, policy in enumerate(self.hypotheses):
                short = replace(_with(self.recipe, policy), steps=self.probe)
                trials.append(short.reconstruct(seen, random.child_seed(seed, "probe", number)))
            chosen = self.hypotheses[min(range(len(trials)), key=lambda i: _rank(trials[i]))]
            spent = sum(trial.evaluations for trial in trials)
        found = _with(self.recipe, chosen).reconstruct(seen, seed, watch=watch)
        note = f"{len(self.hypotheses)} sign hypotheses tried for {self.probe} steps each"
        notes = (*found.notes, note) if spent else found.notes
        return replace(found, evaluations=found.evaluations + spent, notes=notes)


def policy_aware(
    *,
    policy: str | Sequence[str | Transform] = "shift",
    steps: int = 300,
    probe: int = 40,
    schedule: str = "accelerated",
    tv: float | None = None,
    lr: float | None = None,
    parameter_rate: float = 0.02,
    restarts: int = 1,
    num_examples: int | None = None,
) -> PolicyAware:
    """Inverting Gradients through a learnable transformation of the picture.

    `policy` names the operations in order, joined by "+": `shift` leaves magnitudes open, and
    `shift-x=0.453+contrast=0.333+shift-y=0.101` fixes them up to their sign and a small slack, as for an
    attacker who has read the policy but not the coin flips. `schedule="paper"` is the replication's
    optimiser: signed Adam on the picture, plain Adam on the parameters, rate 0.1 with three drops.
    `parameter_rate` is the parameters' rate relative to the picture's.
    """
    transforms = _parsed(policy)
    if schedule == "paper":
        optimiser = Adam(lr=lr or 0.1, signed=True, schedule=three_drops, rates=_rates(transforms, parameter_rate))
        penalty = TotalVariation(1e-4 if tv is None else tv)
    elif schedule == "accelerated":
        optimiser = replace(accelerated(lr or 0.4), rates=_rates(transforms, parameter_rate))
        penalty = TotalVariation(0.5 if tv is None else tv, relative=True, fitted=tv is None)
    else:
        raise UsageError(f"schedule must be 'accelerated' or 'paper', got {schedule!r}")
    if not isinstance(probe, int) or probe < 1:
        raise UsageError(f"attack 'policy-aware' needs a whole number probe ≥ 1, got {probe!r}")
    recipe = GradientMatching(
        name="policy-aware", paper=PAPER, labels=AsGranted(), candidate=Transformed(transforms),
        replay=AsKnown(), distance=Cosine(), penalties=(penalty,), optimiser=optimiser, steps=steps,
        restarts=restarts, num_examples=num_examples, keep="last",
    )  # fmt: skip
    return PolicyAware(recipe, tuple(_signs(transforms)), min(probe, steps))


def _with(recipe: GradientMatching, transforms: tuple[Transform, ...]) -> GradientMatching:
    base = recipe.candidate.base if isinstance(recipe.candidate, Transformed) else Pixels(normalised=True)
    return replace(recipe, candidate=Transformed(transforms, base))


def _parsed(policy: str | Sequence[str | Transform]) -> tuple[Transform, ...]:
    parts = policy.split("+") if isinstance(policy, str) else list(policy)
    if not parts:
        raise UsageError("policy-aware needs at least one transformation; use inverting-gradients without any")
    return tuple(part if isinstance(part, Transform) else _named(part) for part in parts)


def _named(text: str) -> Transform:
    name, given, number = text.strip().partition("=")
    if name not in TRANSFORMS:
        raise UsageError(f"unknown transformation {name!r}.{suggest(name, TRANSFORMS)}")
    transform = TRANSFORMS[name]
    if not given:
        return transform
    try:
        magnitude = float(number)
    except ValueError:
        raise UsageError(f"the magnitude of {name!r} must be a number, got {number!r}; write {name}=0.3") from None
    if len(transform.start) != 1:
        raise UsageError(f"{name!r} has {len(transform.start)} parameters; give a magnitude to shift-x and shift-y")
    return _around(transform, magnitude)


def _around(transform: Transform, magnitude: float) -> Transform:
    """`transform` with its parameter known up to the slack."""
    slack = _SLACK * (transform.high[0] - transform.low[0])
    return replace(transform, start=(magnitude,), low=(magnitude - slack,), high=(magnitude + slack,))


def _signs(transforms: tuple[Transform, ...]) -> list[tuple[Transform, ...]]:
    """Every choice of signs for the magnitudes that have one."""
    choices = []
    for item in transforms:
        known = item.signed and any(value != 0 for value in item.start)
        choices.append([item, _mirrored(item)] if known else [item])
    return [tuple(choice) for choice in itertools.product(*choices)]


def _mirrored(item: Transform) -> Transform:
    flipped: Callable[[tuple[float, ...]], tuple[float, ...]] = lambda row: tuple(-value for value in row)  # noqa: E731
    return replace(item, start=flipped(item.start), low=flipped(item.high), high=flipped(item.low))


def _rates(transforms: tuple[Transform, ...], rate: float) -> dict[str, float]:
    """Rates in proportion to each parameter's range: degrees and fractions must both move."""
    return {
        variable(place): rate * (item.high[0] - item.low[0])
        for place, item in enumerate(transforms)
        if item.start
    }  # fmt: skip


def _rank(trial: Reconstruction) -> tuple[bool, float]:
    return trial.status is not Status.OK, trial.loss if trial.loss == trial.loss else float("inf")
