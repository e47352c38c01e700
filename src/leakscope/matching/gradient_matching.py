"""An optimisation attack: the protocol around the engine, for any recipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from leakscope import rng as random
from leakscope.attack import Attack, Effort, Watch
from leakscope.errors import UsageError
from leakscope.explanation import MatchedPart
from leakscope.matching.candidates import Variables
from leakscope.matching.candidates.pixels import stack_groups, start_unknown_variables
from leakscope.matching.engine import Outcome, run
from leakscope.matching.judgement import Found, best_group, better_of, judge
from leakscope.matching.labels.rules import count_examples, resolve_all
from leakscope.matching.problem import (
    Keep,
    Problem,
    Stop,
    count_parameters,
    lockstep_chunks,
    plain_distance,
)
from leakscope.matching.recipe import Recipe
from leakscope.matching.rounds import average_of, distance_to_nothing, parts_of, rounds_of
from leakscope.networks import kind_of
from leakscope.option_ranges import check_attack_option
from leakscope.types import Knowledge, Observation, Reconstruction, Status


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
        numbers = {"steps": self.steps, "restarts": self.restarts, "retries": self.retries}
        numbers |= {"lr": self.recipe.optimiser.lr}
        numbers |= {} if self.num_examples is None else {"num_examples": self.num_examples}
        for option, value in numbers.items():
            check_attack_option(self.name, option, value)
        for penalty in self.recipe.penalties:
            if not 0 <= penalty.weight < math.inf:
                kind = type(penalty).__name__
                raise UsageError(f"attack {self.name!r} needs a finite weight ≥ 0 for {kind}, got {penalty.weight!r}")

    @property
    def needs(self) -> frozenset[Knowledge]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the label rule needs; a replay's needs depend on the update."""
        return self.recipe.labels.needs

    @property
    def joins_rounds(self) -> bool:
        """Whether the recipe does."""
        return self.recipe.matches_rounds

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

    def least_steps(self, seen: Observation) -> int:
        """What the optimiser needs on a network of this kind."""
        return self.recipe.optimiser.least_steps(kind_of(seen.model))

    def matched_part(self, seen: Observation) -> MatchedPart:
        """The tensors that are matched, and of a replayed update what the distance compares."""
        return MatchedPart(self.recipe.matched(seen), self.recipe.distance.view_alone)

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
        problem = self._narrowed(seen)._problem([seen])
        return float(plain_distance(problem, reconstruction.inputs, targets, given=reconstruction.unknowns))

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        return self._reconstruct_several([seen], seed, watch)[0]

    def _reconstruct_several(self, seen: Sequence[Observation], seed: int, watch: Watch | None) -> list[Reconstruction]:
        return [found.reconstruction for found in self.find(seen, seed, watch=watch)]

    def find(self, seen: Sequence[Observation], seed: int, *, watch: Watch | None = None) -> list[Found]:
        """As `reconstruct`, with the variables behind each reconstruction; victims in lockstep where they fit."""
        results: dict[int, Found] = {}
        counts = [self._count(one) for one in seen]
        chunks = lockstep_chunks(seen, counts, self.restarts, joined=self.joins_rounds, replay=self.recipe.replay)
        for places in chunks:
            together = [seen[place] for place in places]
            # Victims that run together have one model, and so the same steady layers.
            found = self._narrowed(together[0])._chunk(together, places, seed, watch)
            results.update(zip(places, found, strict=True))
        return [results[place] for place in range(len(seen))]

    def _narrowed(self, seen: Observation) -> GradientMatching:
        return replace(self, recipe=self.recipe.narrowed(seen, steps=self.steps))

    def _count(self, seen: Observation) -> int:
        return count_examples(seen, self.num_examples, attack=self.name)

    def _chunk(self, seen: list[Observation], places: list[int], seed: int, watch: Watch | None) -> list[Found]:
        """Run victims together; those that did not get anywhere run again, as often as allowed."""
        # Labels are read off all that was shared, whatever of it is matched.
        readable = [average_of(self.recipe, one) for one in seen]
        labels = resolve_all(self.recipe.labels, readable, self._count(seen[0]))
        found: dict[int, Found] = {}
        pending = list(range(len(seen)))
        for attempt in range(self.retries + 1):
            fixed = None if labels is None else labels[pending].repeat_interleave(self.restarts, 0)
            victims = [seen[i] for i in pending]
            outcome = self._attempt(victims, [places[i] for i in pending], fixed, seed, attempt, watch)
            for row, i in enumerate(pending):
                again = self._pick(outcome, row, seen[i])
                found[i] = better_of(found[i], again) if i in found else again
            pending = [i for i, one in found.items() if self._is_unsolved(one.reconstruction)]
            if not pending:
                break
        unsolved = f"no start came below {self.solved:g} of its starting distance"
        return [
            one.ending(Status.OK, unsolved) if i in pending and one.reconstruction.status is Status.OK else one
            for i, one in found.items()
        ]

    def _is_unsolved(self, reconstruction: Reconstruction) -> bool:
        stuck = reconstruction.loss > self.solved * reconstruction.history[0]
        return reconstruction.status is not Status.OK or stuck

    def _attempt(
        self,
        seen: list[Observation],
        places: list[int],
        labels: Tensor | None,
        seed: int,
        attempt: int,
        watch: Watch | None,
    ) -> Outcome:
        """One run of all groups, each from noise of its own; `labels` [groups, n] are fixed, or None."""
        recipe, problem = self.recipe, self._problem(seen)
        drawing = random.child_seed(seed, self.name, "optimiser", places[0], attempt)
        fitted = problem.optimiser.fitted(count_parameters(seen[0])).seeded(drawing)
        starts = [
            self._start(seen[0], labels is None, seed, ("victim", place, "restart", restart, "attempt", attempt))
            for place in places
            for restart in range(self.restarts)
        ]
        begin = recipe.candidate.project(seen[0], stack_groups(starts))
        return run(replace(problem, optimiser=fitted), begin, labels, watch=watch, seed=drawing)

    def _problem(self, seen: Sequence[Observation]) -> Problem:
        """What is minimised for these victims, of all rounds that are matched together."""
        recipe = self.recipe
        return Problem(
            parts_of(recipe, seen),
            recipe.candidate,
            recipe.replay,
            recipe.penalties,
            recipe.optimiser,
            self.steps,
            self.stop,
            self.keep,
        )

    def _start(self, seen: Observation, open_labels: bool, seed: int, path: tuple[str | int, ...]) -> Variables:
        candidate, count = self.recipe.candidate, self._count(seen)
        begin = candidate.start(seen, count, random.generator(seed, self.name, *path, "inputs"))
        if open_labels and not candidate.generates_labels:
            like = torch.empty(0, device=seen.device, dtype=seen.dtype)
            rng = random.generator(seed, self.name, *path, "labels")
            begin["labels"] = random.normal((count, seen.num_classes), rng, like=like)
        if self.recipe.unknowns:
            rng = random.generator(seed, self.name, *path, "unknowns")
            begin |= start_unknown_variables(seen, self.recipe.replay.target(seen), count, rng)
        return begin

    def _pick(self, outcome: Outcome, victim: int, seen: Observation) -> Found:
        """The best of a victim's starts, and whether it is evidence."""
        count = self._count(seen)
        said = (*seen.notes, *self.recipe.labels.describe(seen, count), *self.recipe.replay.describe(seen))
        found = best_group(outcome, range(victim * self.restarts, (victim + 1) * self.restarts), said)
        nothing = distance_to_nothing(parts_of(self.recipe, [seen]), self.recipe.replay)
        # A round that is not what it was declared to be spoils what is found from all of them.
        against = (note for one in rounds_of(self.recipe, seen) for note in one.contradictions)
        latest = replace(seen, contradictions=tuple(dict.fromkeys(against)))
        status, remarks = judge(latest, found.reconstruction, assumed=count, nothing=nothing)
        return found.ending(status, *remarks)
