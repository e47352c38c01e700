"""What an attack is: a base class whose public methods are final, and what a malicious server hands over.

An attack is a frozen dataclass that writes `_reconstruct` (and `evaluate`) and its fields; everything that the
audit, prices, progress and contracts ask of it is declared here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final, overload

from torch import Tensor, nn

from leakscope import rng as random
from leakscope.explanation import MatchedPart, is_unfinished, measure_fit, settle_status, settle_with_truth
from leakscope.networks import strip, tokens_refused
from leakscope.networks.handover import no_new_global_hooks, take_over
from leakscope.observation.scenario import check_needs
from leakscope.types import Batch, Knowledge, Observation, Reconstruction, Status

if TYPE_CHECKING:
    from leakscope.matching.recipe import Recipe

# Fewer steps than this have hardly left their start on any network that was measured; searches know more of theirs.
LEAST_STEPS = 20
FALLING = "the run ended while it still came closer: no evidence; give it more steps"
SHORT = "{steps} steps are too few on this network, where {name} needs at least {least}: no evidence; give it more"

# Called with (evaluation, inputs of all groups, distances of all groups): must not change them.
Watch = Callable[[int, Tensor, Tensor], None]


@dataclass(frozen=True)
class Effort:
    """What a run of an attack consists of.

    Attributes:
        steps: steps of one run; None for a closed form.
        restarts: starts of one run; None where an attack cannot be started from several points.
        attempts: how often it may run before it gives up: 1 and its retries.
        evaluations: the most evaluations that `steps` steps can take: what a progress bar counts to.
    """

    steps: int | None = None
    restarts: int | None = None
    attempts: int = 1
    evaluations: int | None = None


@dataclass(frozen=True)
class CraftContext:
    """What a server knows when it prepares the model it hands out.

    Attributes:
        seed: the server's own randomness; nothing of the client's can be drawn from it.
        input_shape: shape of one input.
        num_classes: outputs of the network.
        round: number of the round, from 0.
        history: what was observed in earlier rounds, oldest first.
    """

    seed: int = 0
    input_shape: tuple[int, ...] | None = None
    num_classes: int | None = None
    round: int = 0
    history: tuple[Observation, ...] = ()


@dataclass(frozen=True)
class Crafted:
    """The model a server hands out, and what it keeps for itself until the update is back."""

    model: nn.Module
    secret: object = None


class Attack(ABC):
    """Rebuilds private examples from what a server sees."""

    name: str
    paper: str
    # What the scenario must grant for the attack to run; a field or a property where it depends on options.
    needs: frozenset[Knowledge] = frozenset()
    # Whether `_craft` prepares another model than the honest one.
    is_malicious: ClassVar[bool] = False
    # Whether a crafted model may have other layers than the agreed one; without it only weights and buffers may differ.
    changes_architecture: ClassVar[bool] = False
    # Whether inputs are whole numbers that go to an embedding; all others must have a fraction.
    reads_tokens: ClassVar[bool] = False
    # Whether several victims of one model run together, so that memory grows with their number.
    runs_in_lockstep: ClassVar[bool] = False

    @property
    def rounds(self) -> int:
        """How many rounds the attack needs."""
        return 1

    @property
    def joins_rounds(self) -> bool:
        """Whether updates of several rounds are used together (`Observation.earlier`) rather than each by itself."""
        return False

    @property
    def effort(self) -> Effort:
        """What a run costs; a closed form has no steps."""
        return Effort()

    def with_effort(self, effort: Effort) -> Attack:
        """The same attack with other steps, restarts and attempts; what it does not have stays as it is."""
        return self

    def revised(self, change: Callable[[Recipe], Recipe]) -> Attack:
        """The same attack by someone who knows a defence; unchanged where the attack has no recipe."""
        return self

    def needs_of(self, seen: Observation) -> frozenset[Knowledge]:
        """What this update needs known: by default what every update needs."""
        return self.needs

    @final
    def craft(self, model: nn.Module, *, context: CraftContext | None = None) -> Crafted:
        """The model the server hands out: the agreed one unless the server is malicious.

        Of a crafted model only weights and buffers are taken over, into a copy of the agreed network; where the
        attack declares that it changes the architecture, its layers, but no hook and no code of its own.
        """
        if not self.is_malicious:
            return Crafted(model)
        with no_new_global_hooks():
            crafted = self._craft(strip(model), context or CraftContext())
        handed_out = take_over(model, crafted.model, attack=self.name, changes_architecture=self.changes_architecture)
        return Crafted(handed_out, crafted.secret)

    def least_steps(self, seen: Observation) -> int:
        """Steps below which a run on this network is no evidence, unless it explains the update all the same."""
        return LEAST_STEPS

    def matched_part(self, seen: Observation) -> MatchedPart:
        """What of an update a result of this attack has to explain: all of it, unless it knows a defence."""
        return MatchedPart(seen)

    @final
    def judge(self, seen: Observation, found: Reconstruction, trained: Sequence[Batch]) -> Reconstruction:
        """A result with what the true examples explain of the update, and the status that follows: for audits alone."""
        return settle_with_truth(self.matched_part(seen), found, trained, is_short=self._is_short(seen))

    def _is_short(self, seen: Observation) -> bool:
        steps = self.effort.steps
        return steps is not None and steps < self.least_steps(seen)

    @overload
    def reconstruct(
        self, seen: Observation, seed: int = 0, *, watch: Watch | None = None, diagnosing: bool = True
    ) -> Reconstruction: ...

    @overload
    def reconstruct(
        self, seen: Sequence[Observation], seed: int = 0, *, watch: Watch | None = None, diagnosing: bool = True
    ) -> list[Reconstruction]: ...

    @final
    def reconstruct(
        self,
        seen: Observation | Sequence[Observation],
        seed: int = 0,
        *,
        watch: Watch | None = None,
        diagnosing: bool = True,
    ) -> Reconstruction | list[Reconstruction]:
        """Rebuild the examples behind one update, or behind those of several victims of one model.

        Every result says how much of its update it explains, and its status follows from that. `diagnosing` looks for
        a better description of an update that is not explained, which may take further runs; who made the update
        knows its description, and switches it off.
        """
        if isinstance(seen, Observation):
            return self._settle(seen, self.run_unjudged(seen, seed, watch=watch), seed, diagnosing)
        several = list(seen)
        for one in several:
            self._check_suitable(one)
        found = self._reconstruct_several(several, seed, watch)
        return [self._settle(one, each, seed, diagnosing) for one, each in zip(several, found, strict=True)]

    @final
    def run_unjudged(self, seen: Observation, seed: int = 0, *, watch: Watch | None = None) -> Reconstruction:
        """As `reconstruct`, without fit and without the status that follows from it.

        For an attack that runs this one as a part of itself: a part may be short, the whole is judged.
        """
        self._check_suitable(seen)
        return self._reconstruct(seen, seed, watch)

    def _check_suitable(self, seen: Observation) -> None:
        if seen.vocabulary is not None and not self.reads_tokens:
            raise tokens_refused(self.name)
        check_needs(self.name, self.needs_of(seen), seen)

    def _settle(self, seen: Observation, found: Reconstruction, seed: int, diagnosing: bool) -> Reconstruction:
        """The same result with its fit, and the status that follows from it.

        A malicious server reads a model of its own making: what the agreed client would have sent is no measure of it.
        A set of tokens without their order cannot be replayed.
        """
        if self.is_malicious or found.tokens is not None:
            return found
        steps, least = self.effort.steps, self.least_steps(seen)
        # A run that was too short itself would be too short under any other description.
        short = self._is_short(seen)

        def refit(other: Observation) -> Reconstruction:
            return self._reconstruct(other, seed, None)

        doubtful = diagnosing and found.status in (Status.OK, Status.UNEXPLAINED)
        # A description can only be doubted with all of the update at hand.
        compared = MatchedPart(seen) if diagnosing else self.matched_part(seen)
        assessed = measure_fit(compared, found, refit=None if short else refit, diagnosing=doubtful)
        fit = None if assessed is None else assessed.fit
        attainable = 1.0 if assessed is None else assessed.attainable
        status, notes = settle_status(found.status, fit, attainable=attainable), found.notes
        named = assessed is not None and assessed.is_named
        # In an audit the truth may yet turn what is unexplained into a measurement; what is unfinished stays so.
        open_ended = found.status is Status.OK or (found.status is Status.UNEXPLAINED and not diagnosing)
        if not named and open_ended and is_unfinished(found.history, fit, steps=steps, least=least):
            reason = SHORT.format(steps=steps, name=self.name, least=least) if short else FALLING
            status, notes = Status.UNFINISHED, (*notes, reason)
        if fit is not None and status is not Status.OK and fit.diagnosis:
            notes = (*notes, fit.diagnosis)
        return replace(found, fit=fit, status=status, notes=notes)

    @abstractmethod
    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The loss at a reconstruction, computed again: it must equal the loss that was stored with it."""

    @abstractmethod
    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        """Rebuild the examples behind one update; the scenario grants what the attack needs."""

    def _reconstruct_several(self, seen: Sequence[Observation], seed: int, watch: Watch | None) -> list[Reconstruction]:
        """One victim after the other; an attack that can run them in lockstep overrides this."""
        return [self._reconstruct(one, random.child_seed(seed, "victim", i), watch) for i, one in enumerate(seen)]

    def _craft(self, model: nn.Module, context: CraftContext) -> Crafted:
        """Hand out the honest model."""
        return Crafted(model)
