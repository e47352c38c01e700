"""An optimisation attack: one value on each axis, and the protocol around the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from leakscope import rng as random
from leakscope.attack import Attack, Effort, Watch
from leakscope.client import trainable
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.candidates import Candidate, GeneratesLabels
from leakscope.matching.distances import Denoised, Direction, Distance
from leakscope.matching.engine import Outcome, run
from leakscope.matching.label_rules.soft import likeliest
from leakscope.matching.labels import ExplainsLabels, LabelRule, estimate_count
from leakscope.matching.optimisers import Optimiser
from leakscope.matching.penalties import Penalty
from leakscope.matching.problem import Keep, Part, Problem, Stop
from leakscope.matching.replays import Replay, gradient_factor, scale_known
from leakscope.matching.routes import PlainRoute
from leakscope.matching.variables import Variables, stack_groups
from leakscope.matching.verdict import distance_of_zero, judge
from leakscope.types import Knowledge, Observation, Reconstruction, Status

# Gradients of all groups are held at once; beyond this the groups run in turns.
LOCKSTEP_BYTES = 1_000_000_000


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
        only: names of the tensors that are matched; None for all that were shared.
    """

    labels: LabelRule
    candidate: Candidate
    replay: Replay
    distance: Distance
    penalties: tuple[Penalty, ...] = ()
    optimiser: Optimiser
    noise: float = 0.0
    only: tuple[str, ...] | None = None

    def distance_to(self, seen: Observation) -> Distance:
        """The distance as it applies to this update.

        By direction where the scale of a delta is unknown. Weighing by noise is outermost: it compares the noise's
        variance with the shared numbers as they came, in units of the replay.
        """
        bound = self.distance.bound(seen)
        if self.replay.local(seen) is None and not scale_known(seen) and not bound.is_scale_free:
            bound = Direction(bound)
        return Denoised(bound, self.noise * gradient_factor(seen) ** 2) if self.noise > 0 else bound

    def matched(self, seen: Observation) -> Observation:
        """`seen` with only the tensors that are matched."""
        if self.only is None:
            return seen
        shared = seen.update.tensors
        if missing := [name for name in self.only if name not in shared]:
            raise UnsuitableError(
                f"{missing[0]!r} is to be matched but was not shared; choose among {', '.join(shared)}"
            )
        return replace(seen, update=replace(seen.update, tensors={name: shared[name] for name in self.only}))


@dataclass(frozen=True)
class Found:
    """A reconstruction and the variables of the group it was decoded from, without a group axis."""

    reconstruction: Reconstruction
    variables: Variables

    def noting(self, remark: str) -> Found:
        """The same with one more note, where it counts as evidence."""
        if self.reconstruction.status is not Status.OK:
            return self
        notes = (*self.reconstruction.notes, remark)
        return replace(self, reconstruction=replace(self.reconstruction, notes=notes))


@dataclass(frozen=True)
class GradientMatching(Attack):
    """Finds inputs whose update matches the observed one.

    `restarts` starts are run from different noise and the one with the lowest matching
    distance is returned; the truth plays no part in the choice. A victim whose run diverged, or
    ended above `solved` times the distance it started from, is tried again up to `retries` times.
    """

    name: str
    paper: str
    recipe: Recipe
    steps: int
    restarts: int = 1
    retries: int = 0
    solved: float = 1.0
    stop: Stop = field(default_factory=Stop)
    num_examples: int | None = None
    keep: Keep = "best"

    runs_in_lockstep: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check_whole("steps", self.steps, least=1)
        self._check_whole("restarts", self.restarts, least=1)
        self._check_whole("retries", self.retries, least=0)
        if self.num_examples is not None:
            self._check_whole("num_examples", self.num_examples, least=1)
        rate = self.recipe.optimiser.lr
        if not 0 <= rate < math.inf:
            raise UsageError(f"attack {self.name!r} needs a finite rate lr ≥ 0, got {rate!r}")
        for penalty in self.recipe.penalties:
            if not 0 <= penalty.weight < math.inf:
                kind = type(penalty).__name__
                raise UsageError(f"attack {self.name!r} needs a finite weight ≥ 0 for {kind}, got {penalty.weight!r}")

    def _check_whole(self, option: str, value: int, *, least: int) -> None:
        if not isinstance(value, int) or value < least:
            raise UsageError(f"attack {self.name!r} needs a whole number {option} ≥ {least}, got {value!r}")

    @property
    def needs(self) -> frozenset[Knowledge]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the label rule needs; a replay's needs depend on the update."""
        return self.recipe.labels.needs

    def needs_of(self, seen: Observation) -> frozenset[Knowledge]:
        """What labels and replay need for this update."""
        return self.needs | self.recipe.replay.needs(seen)

    @property
    def effort(self) -> Effort:
        """Steps of one run, its starts, its attempts, and the most evaluations of a run."""
        return Effort(self.steps, self.restarts, 1 + self.retries, self.recipe.optimiser.evaluations(self.steps))

    def with_effort(self, effort: Effort) -> GradientMatching:
        """The same attack with other steps, starts and attempts; None leaves steps or starts as they are."""
        return replace(
            self,
            steps=self.steps if effort.steps is None else effort.steps,
            restarts=self.restarts if effort.restarts is None else effort.restarts,
            retries=effort.attempts - 1,
        )

    def revised(self, change: Callable[[Recipe], Recipe]) -> GradientMatching:
        """The same attack by another recipe."""
        return replace(self, recipe=change(self.recipe))

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The matching distance at a reconstruction, computed again by plain differentiation."""
        targets = reconstruction.target_probabilities
        if targets is None:
            targets = reconstruction.targets
        if targets is None:
            targets = torch.zeros(len(reconstruction.inputs), dtype=torch.long, device=seen.device)
        seen = self.recipe.matched(seen)
        target = {name: value[None] for name, value in self.recipe.replay.target(seen).items()}
        plain = PlainRoute(seen, self.recipe.replay, self.recipe.distance_to(seen))
        return float(plain.distance_at(reconstruction.inputs, targets, target, create_graph=False)[0].detach())

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        return self._reconstruct_several([seen], seed, watch)[0]

    def _reconstruct_several(self, seen: Sequence[Observation], seed: int, watch: Watch | None) -> list[Reconstruction]:
        return [found.reconstruction for found in self.find(seen, seed, watch=watch)]

    def find(self, seen: Sequence[Observation], seed: int, *, watch: Watch | None = None) -> list[Found]:
        """As `reconstruct`, with the variables behind each reconstruction; victims in lockstep where they fit."""
        results: dict[int, Found] = {}
        for places in _lockstep_chunks(seen, [self._count(one) for one in seen], self.restarts):
            found = self._chunk([seen[place] for place in places], places, seed, watch)
            results.update(zip(places, found, strict=True))
        return [results[place] for place in range(len(seen))]

    def _count(self, seen: Observation) -> int:
        # What the scenario grants is a fact; the attack's own number is an assumption in its absence.
        if granted := seen.num_examples or self.num_examples:
            return granted
        try:
            return estimate_count(seen)
        except UnsuitableError as error:
            raise UnsuitableError(
                f"attack {self.name!r} must know how many examples to rebuild: the scenario does not say, and {error}; "
                "give num_examples=, or use a scenario that grants the number"
            ) from None

    def _chunk(self, seen: list[Observation], places: list[int], seed: int, watch: Watch | None) -> list[Found]:
        recipe, count = self.recipe, self._count(seen[0])
        # Labels are read off all that was shared, whatever of it is matched.
        labels = _resolve(recipe.labels, seen, count)
        matched = [recipe.matched(one) for one in seen]
        optimiser = recipe.optimiser.fitted(_parameters(seen[0]))
        found: list[Found] = []
        pending = list(range(len(seen)))
        for attempt in range(self.retries + 1):
            problem = Problem(
                (Part([matched[i] for i in pending], recipe.distance_to(matched[0])),),
                recipe.candidate,
                recipe.replay,
                recipe.penalties,
                optimiser.seeded(random.child_seed(seed, self.name, "optimiser", places[0], attempt)),
                steps=self.steps,
                stop=self.stop,
                keep=self.keep,
            )
            fixed = None if labels is None else labels[pending]
            outcome = self._attempt(problem, [places[i] for i in pending], fixed, count, seed, attempt, watch)
            again = [self._pick(outcome, row, seen[i]) for row, i in enumerate(pending)]
            if attempt == 0:
                found = again
            else:
                for i, one in zip(pending, again, strict=True):
                    found[i] = _better(found[i], one)
            pending = [i for i, one in enumerate(found) if self._unsolved(one.reconstruction)]
            if not pending:
                return found
        unsolved = f"no start came below {self.solved:g} of its starting distance"
        return [one.noting(unsolved) if i in pending else one for i, one in enumerate(found)]

    def _label_notes(self, seen: Observation) -> tuple[str, ...]:
        return (
            self.recipe.labels.describe(seen, self._count(seen))
            if isinstance(self.recipe.labels, ExplainsLabels)
            else ()
        )

    def _unsolved(self, reconstruction: Reconstruction) -> bool:
        stuck = reconstruction.loss > self.solved * reconstruction.history[0]
        return reconstruction.status is not Status.OK or stuck

    def _attempt(
        self, problem: Problem, places: list[int], labels: Tensor | None, count: int, seed: int, attempt: int,
        watch: Watch | None,
    ) -> Outcome:  # fmt: skip
        first = problem.first
        like = torch.empty(0, device=first.device, dtype=first.dtype)
        logits = labels is None and not isinstance(self.recipe.candidate, GeneratesLabels)
        groups = []
        for place in places:
            for restart in range(self.restarts):
                path = (self.name, "victim", place, "restart", restart, "attempt", attempt)
                begin = self.recipe.candidate.start(first, count, random.generator(seed, *path, "inputs"))
                if logits:
                    rng = random.generator(seed, *path, "labels")
                    begin["labels"] = random.normal((count, first.num_classes), rng, like=like)
                groups.append(begin)
        start = self.recipe.candidate.project(first, stack_groups(groups))
        if labels is not None:
            labels = labels.repeat_interleave(self.restarts, 0)
        return run(problem, start, labels, watch=watch)

    def _pick(self, outcome: Outcome, victim: int, seen: Observation) -> Found:
        groups = range(victim * self.restarts, (victim + 1) * self.restarts)
        # Selection by observables only: a run that is evidence first, then the lowest distance.
        chosen = min(groups, key=lambda g: (outcome.status[g] is not Status.OK, _finite(outcome.distance[g])))
        targets = outcome.targets[chosen]
        soft = targets if targets.is_floating_point() else None
        status = outcome.status[chosen] if bool(torch.isfinite(outcome.distance[chosen])) else Status.NAN
        found = Reconstruction(
            inputs=outcome.images[chosen].clone(),
            targets=likeliest(targets) if soft is not None else targets.clone(),
            loss=float(outcome.distance[chosen]),
            status=status,
            history=tuple(outcome.history[:, chosen].tolist()),
            target_probabilities=soft,
            evaluations=outcome.evaluations,
            notes=(*seen.notes, *self._label_notes(seen), *outcome.routes, *outcome.notes[chosen]),
        )
        matched = self.recipe.matched(seen)
        target = {name: value[None] for name, value in self.recipe.replay.target(matched).items()}
        nothing = distance_of_zero(self.recipe.distance_to(matched), target)
        status, remarks = judge(seen, found, assumed=self._count(seen), nothing=nothing)
        variables = {name: value[chosen].clone() for name, value in outcome.variables.items()}
        return Found(replace(found, status=status, notes=(*found.notes, *remarks)), variables)


def _resolve(rule: LabelRule, seen: list[Observation], count: int) -> Tensor | None:
    each = [rule.resolve(one, count) for one in seen]
    kept = [labels for labels in each if labels is not None]
    return torch.stack(kept) if kept else None


def _lockstep_chunks(seen: Sequence[Observation], counts: list[int], restarts: int) -> list[list[int]]:
    """Places of victims that can run together: same model object, names, kind, size; and memory."""
    chunks: dict[tuple[object, ...], list[list[int]]] = {}
    for place, (one, count) in enumerate(zip(seen, counts, strict=True)):
        key = (id(one.model), id(one.loss), one.bounds, one.input_shape, one.update.kind, one.local, one.order,
               tuple(one.update.tensors), count)  # fmt: skip
        room = max(1, LOCKSTEP_BYTES // (_bytes_per_group(one, count) * restarts))
        rows = chunks.setdefault(key, [[]])
        if len(rows[-1]) >= room:
            rows.append([])
        rows[-1].append(place)
    return [row for rows in chunks.values() for row in rows]


def _bytes_per_group(seen: Observation, count: int) -> int:
    """Gradient, target, direction and their transforms, plus the activations of `count` examples."""
    activations = count * 600 * int(torch.tensor(seen.input_shape).prod())
    return seen.dtype.itemsize * (6 * _parameters(seen) + activations)


def _parameters(seen: Observation) -> int:
    return sum(value.numel() for value in trainable(seen.model).values())


def _finite(value: Tensor) -> float:
    return float(value.nan_to_num(torch.inf, torch.inf, torch.inf))


def _better(first: Found, second: Found) -> Found:
    """The attempt that is evidence, or has the lower distance; evaluations of both are counted."""
    chosen = min(first, second, key=_rank)
    spent = first.reconstruction.evaluations + second.reconstruction.evaluations
    return replace(chosen, reconstruction=replace(chosen.reconstruction, evaluations=spent))


def _rank(found: Found) -> tuple[bool, float]:
    loss = found.reconstruction.loss
    return found.reconstruction.status is not Status.OK, loss if loss == loss else math.inf
