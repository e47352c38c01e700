"""The policy-aware attack: the translation module of the second ATS replication, and any policy beyond it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from leakscope import rng as random
from leakscope.attack import Effort, Watch
from leakscope.errors import UnsuitableError, UsageError, suggest
from leakscope.matching.candidates import TRANSFORMS, Transform, Transformed, known_chains
from leakscope.matching.candidates.transformed import variable
from leakscope.matching.distances import Cosine
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import Inferred
from leakscope.matching.presets import ScheduleName, schedule_preset
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import AsKnown
from leakscope.matching.wrapper import MatchingWrapper, one_round
from leakscope.operations.policy import Policy, is_written_as_policy
from leakscope.option_ranges import check_attack_option
from leakscope.types import Observation, Reconstruction, Status

PAPER = (
    "Replication of Gao et al. (CVPR 2021) by the Linkerbrain team, ML Reproducibility Challenge 2021: "
    "attack with a learnable translation; here any differentiable transformation"
)

# The operations in order, with their starts and ranges: one chain for all examples, or one for each.
Chains = tuple[tuple[Transform, ...], ...]

# A magnitude that is known is still off by interpolation and by a random crop of up to 4 of 32 pixels.
_SLACK = 0.13


@dataclass(frozen=True)
class PolicyAware(MatchingWrapper):
    """Tries every sign of the policy's magnitudes, and every policy, for `probe` steps; then runs the best in full.

    The signs of several examples are first tried together, then one at a time: each example flips its own coin.
    The choice is by matching distance: the truth plays no part.
    """

    hypotheses: Chains
    probe: int
    name: str = "policy-aware"
    paper: str = PAPER

    def with_effort(self, effort: Effort) -> PolicyAware:
        """The same attack with another length; probes are never more than a quarter of it."""
        search = self.search.with_effort(effort)
        probe = self.probe if search.steps == self.search.steps else max(1, min(self.probe, search.steps // 4))
        return replace(self, search=search, probe=probe)

    def revised(self, change: Callable[[Recipe], Recipe]) -> PolicyAware:
        """The same attack around a search that knows a defence; what was done to the pictures is its own business."""
        search = self.search.revised(lambda recipe: one_round(change(recipe)))
        own = self.search.recipe.candidate
        return replace(self, search=search.revised(lambda recipe: replace(recipe, candidate=own)))

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        """Rebuild what the model saw."""
        _check(seen)
        if len(self.hypotheses) == 1:
            return _with(self.search, self.hypotheses).run_unjudged(seen, seed, watch=watch)
        chains, spent, notes = self._signs(seen, seed)
        found = _with(self.search, chains).run_unjudged(seen, seed, watch=watch)
        return replace(found, evaluations=found.evaluations + spent, notes=(*found.notes, *notes))

    def _signs(self, seen: Observation, seed: int) -> tuple[Chains, int, tuple[str, ...]]:
        """The chain of every example, or one for all; the evaluations it took; and what was tried."""
        trials = [
            self._try((policy,), seen, random.child_seed(seed, "probe", number))
            for number, policy in enumerate(self.hypotheses)
        ]
        best = min(range(len(trials)), key=lambda i: _rank(trials[i]))
        spent = sum(trial.evaluations for trial in trials)
        notes = (f"{len(self.hypotheses)} sign hypotheses tried for {self.probe} steps each",)
        count = len(trials[best].inputs)
        if count == 1:
            return (self.hypotheses[best],), spent, notes
        others = _best_of_others(self.hypotheses, [_rank(trial) for trial in trials], best)
        chains, lowest, changes = (self.hypotheses[best],) * count, _rank(trials[best]), 0
        # The start of the trial that is to be beaten: distances from different noise do not compare.
        start = random.child_seed(seed, "probe", best)
        longest = max(len(chain) for chain in self.hypotheses)
        # One coin after the other, each once: the cost grows with the number of coins, not of their outcomes.
        for example, move in itertools.product(range(count), (*others, *range(longest))):
            own = _flip(chains[example], move) if isinstance(move, int) else move
            if own == chains[example]:
                continue
            changed = (*chains[:example], own, *chains[example + 1 :])
            trial = self._try(changed, seen, start)
            spent, changes = spent + trial.evaluations, changes + 1
            if _rank(trial) < lowest:
                chains, lowest = changed, _rank(trial)
        what = "single signs and policies" if others else "single signs"
        return chains, spent, (*notes, f"then {changes} {what} of {count} examples, for as many steps each")

    def _try(self, chains: Chains, seen: Observation, seed: int) -> Reconstruction:
        return replace(_with(self.search, chains), steps=self.probe).run_unjudged(seen, seed)


def policy_aware(
    *,
    policy: str | Sequence[str | Transform] = "shift",
    steps: int = 300,
    probe: int = 40,
    schedule: ScheduleName = "accelerated",
    tv: float | None = None,
    lr: float | None = None,
    parameter_rate: float = 0.02,
    restarts: int = 1,
    num_examples: int | None = None,
) -> PolicyAware:
    """Inverting Gradients through a learnable transformation of the picture.

    `policy` names the operations in order, joined by "+": `shift` leaves magnitudes open, and
    `shift-x=0.453+contrast=0.333+shift-y=0.101` fixes them up to their sign and a small slack, as for an
    attacker who has read the policy but not the coin flips. A policy of the transformation search is given by its
    numbers, `3-1-7` or the hybrid `3-1-7+43-18-18`, of which every example drew one. `schedule="paper"` is the
    replication's optimiser: signed Adam on the picture, plain Adam on the parameters, rate 0.1 with three drops.
    `parameter_rate` is the parameters' rate relative to the picture's.
    """
    hypotheses = _hypotheses(policy)
    preset = schedule_preset(schedule, lr=lr, tv=tv, steps=steps)
    check_attack_option("policy-aware", "probe", probe)
    search = GradientMatching(
        name="policy-aware",
        paper=PAPER,
        recipe=Recipe(
            labels=Inferred(),
            candidate=preset.candidate,
            replay=AsKnown(),
            distance=Cosine(),
            penalties=(preset.penalty,),
            optimiser=replace(preset.optimiser, rates=_rates(hypotheses, parameter_rate)),
        ),
        steps=preset.steps,
        restarts=restarts,
        num_examples=num_examples,
        keep="last",
    )
    return PolicyAware(search, hypotheses, min(probe, steps))


def _check(seen: Observation) -> None:
    """Insist on pictures in [0, 1]: black is 0, and enhancers end at 0 and 1."""
    if len(seen.input_shape) != 3:
        raise UnsuitableError(
            f"policy-aware transforms pictures [channels, height, width], got inputs {list(seen.input_shape)}; "
            "use inverting-gradients"
        )
    if seen.bounds != (0.0, 1.0):
        raise UnsuitableError(
            f"policy-aware transforms pictures in [0, 1], where black is 0, got bounds {seen.bounds}; pass pictures in "
            "[0, 1] and let the model normalise, or use inverting-gradients"
        )


def _with(search: GradientMatching, chains: Chains) -> GradientMatching:
    """`search` with its pictures passed through one chain for all examples, or one for each."""
    first, each = chains[0], chains if len(chains) > 1 else ()
    return search.revised(lambda recipe: replace(recipe, candidate=Transformed(first, recipe.candidate, each)))


def _hypotheses(policy: str | int | Sequence[str | Transform]) -> Chains:
    """Every chain that one example may have passed through."""
    if isinstance(policy, int) or (isinstance(policy, str) and is_written_as_policy(policy)):
        return known_chains(Policy.parse(policy))
    return tuple(_signs(_parse(policy)))


def _parse(policy: str | Sequence[str | Transform]) -> tuple[Transform, ...]:
    parts = policy.split("+") if isinstance(policy, str) else list(policy)
    if not parts:
        raise UsageError("policy-aware needs at least one transformation; use inverting-gradients without any")
    return tuple(part if isinstance(part, Transform) else _find_transform(part) for part in parts)


def _find_transform(text: str) -> Transform:
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
    choices = [[item, _mirror(item)] if _has_sign(item) else [item] for item in transforms]
    return [tuple(choice) for choice in itertools.product(*choices)]


def _has_sign(item: Transform) -> bool:
    return item.signed and any(value != 0 for value in item.start)


def _best_of_others(hypotheses: Chains, ranks: Sequence[tuple[bool, float]], best: int) -> Chains:
    """The best hypothesis of every policy but the one that `best` belongs to."""
    found: dict[tuple[str, ...], int] = {}
    for number in sorted(range(len(hypotheses)), key=lambda i: ranks[i]):
        found.setdefault(_names(hypotheses[number]), number)
    return tuple(hypotheses[number] for names, number in found.items() if names != _names(hypotheses[best]))


def _names(chain: tuple[Transform, ...]) -> tuple[str, ...]:
    return tuple(item.name for item in chain)


def _flip(own: tuple[Transform, ...], place: int) -> tuple[Transform, ...]:
    """`own` with the sign of one operation turned over, where there is one."""
    if place >= len(own) or not _has_sign(own[place]):
        return own
    return (*own[:place], _mirror(own[place]), *own[place + 1 :])


def _mirror(item: Transform) -> Transform:
    flipped: Callable[[tuple[float, ...]], tuple[float, ...]] = lambda row: tuple(-value for value in row)  # noqa: E731
    return replace(item, start=flipped(item.start), low=flipped(item.high), high=flipped(item.low))


def _rates(hypotheses: Chains, rate: float) -> dict[str, float]:
    """Rates in proportion to each parameter's range, the widest at a place: degrees and fractions must both move."""
    found: dict[str, float] = {}
    for place, item in (pair for chain in hypotheses for pair in enumerate(chain)):
        if item.start:
            found[variable(place)] = max(found.get(variable(place), 0.0), rate * (item.high[0] - item.low[0]))
    return found


def _rank(trial: Reconstruction) -> tuple[bool, float]:
    return trial.status is not Status.OK, trial.loss if trial.loss == trial.loss else float("inf")
