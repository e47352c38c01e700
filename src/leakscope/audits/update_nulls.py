"""Null baselines of updates that someone else made.

*Prior alone* needs the update of something else. In a folder that is another file of the same form, which the same
attack has rebuilt anyway: its result costs nothing more. Elsewhere an update is made as the declared client would make
it, of public examples or of smooth noise, and attacking it costs what the attack itself cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch

from leakscope import rng as random
from leakscope.attack import Attack, Watch
from leakscope.audits.nulls import (
    PRIOR,
    PUBLIC,
    PUBLIC_PICTURES,
    Attacked,
    AttackUnrelated,
    Nulls,
    draw_unrelated,
    drop_copies,
    measure_nulls,
)
from leakscope.client import share
from leakscope.errors import UnsuitableError
from leakscope.observation.observe import observe
from leakscope.types import Batch, LocalTraining, Observation, Reconstruction, SharedUpdate

# Where a change of weights comes without its training: the length of one step, which attacks leave open there.
_ANY_RATE = 0.01


@dataclass(frozen=True)
class KnownUpdate:
    """An attacked update whose true examples are known; of the update itself only the form, since it may be large.

    Attributes:
        name: of its file.
        form: what two updates must have in common for the one to stand for something else beside the other.
        found: what came back.
        truth: what was behind it.
    """

    name: str
    form: tuple[object, ...]
    found: Reconstruction
    truth: Batch

    @classmethod
    def of(cls, name: str, update: SharedUpdate, *, found: Reconstruction, truth: Batch) -> KnownUpdate:
        """The update of a file with what came of it."""
        form = (update.kind, frozenset(update.tensors), update.num_examples, update.local, len(truth))
        return cls(name, form, found, truth)

    def rebuilt(self, _: Batch | None) -> Reconstruction:
        """What came back, as an answer to the question what the same attack makes of another update."""
        return self.found

    @property
    def is_text(self) -> bool:
        """Whether inputs are tokens, which have no nearest neighbour."""
        return not self.truth.inputs.is_floating_point()


def find_other(mine: KnownUpdate, known: Sequence[KnownUpdate]) -> KnownUpdate | None:
    """Another update of the same form that shares no example with this one; with the same labels, if there is one.

    A client often sends updates of the same examples: what comes back from those would pass for what the prior gives.
    """
    if mine.is_text:
        return None
    others = [
        other
        for other in islice(_after(mine, known), PUBLIC_PICTURES)
        if other.form == mine.form and _shares_nothing(other.truth, mine.truth)
    ]
    return next((other for other in others if torch.equal(other.truth.targets, mine.truth.targets)), None) or next(
        iter(others), None
    )


def gather_public(mine: KnownUpdate, known: Sequence[KnownUpdate], *, given: Batch | None, seed: int) -> Batch | None:
    """At most 64 examples that are not behind this update: of those given, else the truths of other updates."""
    if mine.is_text:
        return None
    if given is not None:
        chosen = torch.randperm(len(given), generator=random.generator(seed, "public"))[:PUBLIC_PICTURES]
        return Batch(given.inputs[chosen], given.targets[chosen], given.bounds)
    others = [other.truth for other in islice(_after(mine, known), PUBLIC_PICTURES)]
    if not others:
        return None
    joined = torch.cat([other.inputs for other in others])[:PUBLIC_PICTURES]
    return Batch(joined, torch.cat([other.targets for other in others])[:PUBLIC_PICTURES], mine.truth.bounds)


def measure_update_nulls(
    mine: KnownUpdate,
    known: Sequence[KnownUpdate],
    *,
    attack_made: AttackUnrelated | None,
    public: Batch | None = None,
    seed: int = 0,
) -> Nulls:
    """The nulls of one update beside `known`, all updates of its folder.

    `attack_made` attacks an update made of something else, and is asked only where no other file will do; None leaves
    prior alone out.
    """
    other = None if attack_made is None else find_other(mine, known)
    nulls = measure_nulls(
        [Attacked(mine.found, mine.truth)],
        seed=seed,
        public=gather_public(mine, known, given=public, seed=seed),
        attack_unrelated=attack_made if other is None else other.rebuilt,
    )
    if PRIOR not in nulls.baselines:
        return nulls
    made_of = "other true or public examples" if PUBLIC in nulls.baselines else "smooth noise"
    source = f"an update made of {made_of}" if other is None else f"{other.name}, an update of the same form"
    return replace(nulls, notes=(*nulls.notes, f"prior alone: the same attack on {source}"))


def attack_made_update(
    attack: Attack,
    seen: Observation,
    public: Batch | None,
    *,
    update: SharedUpdate,
    like: Batch,
    seed: int,
    watch: Watch | None = None,
) -> Reconstruction:
    """The attack, with the same seed, on an update that the declared client makes of something else.

    It is of the form of `update`, and of as many examples as `like` has, with their labels: public ones, else smooth
    noise.
    """
    unrelated = draw_unrelated(like, public, seed=random.child_seed(seed, "unrelated"))
    local = update.local if update.kind == "delta" else None
    if update.kind == "delta" and local is None:
        local = LocalTraining(_ANY_RATE, 1, len(like))
    made = share(seen.model, unrelated, local=local, seed=random.child_seed(seed, "share", 0))
    if not isinstance(made, SharedUpdate):
        raise UnsuitableError("the update made of something else is sealed")
    tensors = {name: made.tensors[name] for name in update.tensors}
    shown = replace(update, tensors=tensors, buffers=made.buffers)
    observed = observe(seen.model, shown, scenario=seen.scenario, input_shape=seen.input_shape, targets=seen.targets)
    return attack.reconstruct(replace(observed, bounds=seen.bounds), seed, watch=watch, diagnosing=False)


def _after(mine: KnownUpdate, known: Sequence[KnownUpdate]) -> Iterator[KnownUpdate]:
    """All others, beginning with the next one."""
    place = next(place for place, other in enumerate(known) if other is mine)
    return iter([*known[place + 1 :], *known[:place]])


def _shares_nothing(one: Batch, other: Batch) -> bool:
    kept = drop_copies(one, [other])
    return kept is not None and len(kept) == len(one)
