"""An optimisation attack: one value on each axis, and the protocol around the engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.attack import Watch
from leakscope.client import trainable
from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.candidates import Candidate, GeneratesLabels, Pixels
from leakscope.matching.distances import (
    Clipped,
    Denoised,
    Direction,
    Distance,
    Masked,
    bind,
    is_scale_free,
    within_noise,
)
from leakscope.matching.engine import Outcome, run
from leakscope.matching.facts import Bounded, Fact, Sparse
from leakscope.matching.label_rules.soft import likeliest
from leakscope.matching.labels import ExplainsLabels, LabelRule, estimate_count
from leakscope.matching.optimisers import Optimiser, accelerated, seeded
from leakscope.matching.penalties import Penalty, TotalVariation
from leakscope.matching.problem import Keep, Part, Problem, Stop
from leakscope.matching.replays import Replay, scale_known
from leakscope.matching.routes import PlainRoute
from leakscope.matching.variables import stack_groups
from leakscope.matching.verdict import distance_of_zero, judge
from leakscope.threat import check_needs
from leakscope.types import Knowledge, Observation, Reconstruction, SharedUpdate, Status

# Gradients of all groups are held at once; beyond this the groups run in turns.
LOCKSTEP_BYTES = 1_000_000_000


@dataclass(frozen=True)
class GradientMatching:
    """Finds inputs whose update matches the observed one.

    `restarts` starts are run from different noise and the one with the lowest matching
    distance is returned; the truth plays no part in the choice. A victim whose run diverged, or
    ended above `solved` times the distance it started from, is tried anew up to `retries` times.
    """

    name: str
    paper: str
    labels: LabelRule
    candidate: Candidate
    replay: Replay
    distance: Distance
    optimiser: Optimiser
    steps: int
    penalties: tuple[Penalty, ...] = ()
    restarts: int = 1
    retries: int = 0
    solved: float = 1.0
    stop: Stop = field(default_factory=Stop)
    num_examples: int | None = None
    keep: Keep = "best"

    def __post_init__(self) -> None:
        least = {"steps": 1, "restarts": 1, "retries": 0}
        if self.num_examples is not None:
            least["num_examples"] = 1
        for option, bound in least.items():
            value = getattr(self, option)
            if not isinstance(value, int) or value < bound:
                raise UsageError(f"attack {self.name!r} needs a whole number {option} ≥ {bound}, got {value!r}")
        rate = getattr(self.optimiser, "lr", 1.0)
        if not 0 <= rate < math.inf:
            raise UsageError(f"attack {self.name!r} needs a finite rate lr ≥ 0, got {rate!r}")
        for penalty in self.penalties:
            if not 0 <= penalty.weight < math.inf:
                kind = type(penalty).__name__
                raise UsageError(f"attack {self.name!r} needs a finite weight ≥ 0 for {kind}, got {penalty.weight!r}")

    @property
    def needs(self) -> frozenset[Knowledge]:
        """What the label rule needs; a replay's needs depend on the update and are checked with it."""
        return self.labels.needs

    def craft(self, model: nn.Module, history: Sequence[SharedUpdate] = ()) -> nn.Module:
        """Hand out the honest model."""
        return model

    def reconstruct(self, seen: Observation, seed: int = 0, *, watch: Watch | None = None) -> Reconstruction:
        """Rebuild the examples behind one update."""
        return self.reconstruct_many([seen], seed, watch=watch)[0]

    def reconstruct_many(
        self, seen: Sequence[Observation], seed: int = 0, *, watch: Watch | None = None
    ) -> list[Reconstruction]:
        """Rebuild the examples of several victims of one model, in lockstep where they fit together."""
        for one in seen:
            check_needs(self.name, self.needs | self.replay.needs(one), one)
        results: list[Reconstruction | None] = [None] * len(seen)
        for places in _lockstep_chunks(seen, [self._count(one) for one in seen], self.restarts):
            found = self._chunk([seen[place] for place in places], places, seed, watch)
            for place, reconstruction in zip(places, found, strict=True):
                results[place] = reconstruction
        return [reconstruction for reconstruction in results if reconstruction is not None]

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The matching distance at a reconstruction, computed afresh by plain differentiation."""
        targets = reconstruction.target_probabilities
        if targets is None:
            targets = reconstruction.targets
        if targets is None:
            targets = torch.zeros(len(reconstruction.inputs), dtype=torch.long, device=seen.device)
        target = {name: value[None] for name, value in self.replay.target(seen).items()}
        plain = PlainRoute(seen, self.replay, self._distance(seen))
        return float(plain.distance_at(reconstruction.inputs, targets, target, create_graph=False)[0].detach())

    def informed(self, fact: Fact) -> GradientMatching:
        """The same attack run by someone who knows what was done to the update.

        Zeroed entries are left out of the comparison; a clipped update is compared with clipped
        candidates; under noise an exact match means nothing, so noisy tensors weigh less and
        the prior on images weighs more.
        """
        if isinstance(fact, Sparse):
            return replace(self, distance=within_noise(self.distance, Masked))
        if isinstance(fact, Bounded):
            return replace(self, distance=within_noise(self.distance, Clipped))
        quieter = replace(self, distance=Denoised(self.distance, fact.variance))
        if not isinstance(self.candidate, Pixels):
            # A candidate with a prior of its own is steered by that prior already.
            return quieter
        return replace(
            quieter, penalties=(TotalVariation(1.0, relative=True),),
            candidate=Pixels(begin="normal", normalised=True), steps=max(300, min(self.steps, 2_000)),
            optimiser=accelerated(), keep="last",
        )  # fmt: skip

    def _distance(self, seen: Observation) -> Distance:
        """The distance as it applies to this update: by direction where the scale of a delta is unknown."""
        scaleless = self.replay.local(seen) is None and not scale_known(seen)
        bound = bind(self.distance, seen)
        return within_noise(bound, Direction) if scaleless and not is_scale_free(bound) else bound

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

    def _chunk(
        self, seen: list[Observation], places: list[int], seed: int, watch: Watch | None
    ) -> list[Reconstruction]:
        count = self._count(seen[0])
        labels = _resolve(self.labels, seen, count)
        found: list[Reconstruction] = []
        pending = list(range(len(seen)))
        for attempt in range(self.retries + 1):
            part = Part([seen[i] for i in pending], self._distance(seen[0]))
            problem = Problem(
                (part,), self.candidate, self.replay, self.penalties,
                seeded(self.optimiser, random.child_seed(seed, self.name, "optimiser", places[0], attempt)),
                self.steps, self.stop, self.keep,
            )  # fmt: skip
            fixed = None if labels is None else labels[pending]
            outcome = self._attempt(problem, [places[i] for i in pending], fixed, count, seed, attempt, watch)
            again = [self._pick(outcome, row, seen[i]) for row, i in enumerate(pending)]
            if attempt == 0:
                found = again
            else:
                for i, reconstruction in zip(pending, again, strict=True):
                    found[i] = _better(found[i], reconstruction)
            pending = [i for i, reconstruction in enumerate(found) if self._unsolved(reconstruction)]
            if not pending:
                return found
        return [
            replace(one, notes=(*one.notes, f"no start came below {self.solved:g} of its starting distance"))
            if i in pending and one.status is Status.OK
            else one
            for i, one in enumerate(found)
        ]

    def _label_notes(self, seen: Observation) -> tuple[str, ...]:
        return self.labels.describe(seen, self._count(seen)) if isinstance(self.labels, ExplainsLabels) else ()

    def _unsolved(self, reconstruction: Reconstruction) -> bool:
        stuck = reconstruction.loss > self.solved * reconstruction.history[0]
        return reconstruction.status is not Status.OK or stuck

    def _attempt(
        self, problem: Problem, places: list[int], labels: Tensor | None, count: int, seed: int, attempt: int,
        watch: Watch | None,
    ) -> Outcome:  # fmt: skip
        first = problem.first
        like = torch.empty(0, device=first.device, dtype=first.dtype)
        logits = labels is None and not isinstance(self.candidate, GeneratesLabels)
        groups = []
        for place in places:
            for restart in range(self.restarts):
                path = (self.name, "victim", place, "restart", restart, "attempt", attempt)
                begin = self.candidate.start(first, count, random.generator(seed, *path, "inputs"))
                if logits:
                    rng = random.generator(seed, *path, "labels")
                    begin["labels"] = random.normal((count, first.num_classes), rng, like=like)
                groups.append(begin)
        start = self.candidate.project(first, stack_groups(groups))
        if labels is not None:
            labels = labels.repeat_interleave(self.restarts, 0)
        return run(problem, start, labels, watch=watch)

    def _pick(self, outcome: Outcome, victim: int, seen: Observation) -> Reconstruction:
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
        target = {name: value[None] for name, value in self.replay.target(seen).items()}
        status, remarks = judge(
            seen, found, assumed=self._count(seen), nothing=distance_of_zero(self._distance(seen), target)
        )
        return replace(found, status=status, notes=(*found.notes, *remarks))


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
    weights = sum(value.numel() for value in trainable(seen.model).values())
    activations = count * 600 * int(torch.tensor(seen.input_shape).prod())
    return seen.dtype.itemsize * (6 * weights + activations)


def _finite(value: Tensor) -> float:
    return float(value.nan_to_num(torch.inf, torch.inf, torch.inf))


def _better(first: Reconstruction, second: Reconstruction) -> Reconstruction:
    """The attempt that is evidence, or has the lower distance; evaluations of both are counted."""
    chosen = min(first, second, key=_rank)
    return replace(chosen, evaluations=first.evaluations + second.evaluations)


def _rank(reconstruction: Reconstruction) -> tuple[bool, float]:
    loss = reconstruction.loss
    return reconstruction.status is not Status.OK, loss if loss == loss else float("inf")
