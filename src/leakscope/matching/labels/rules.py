"""Axis 1: where labels come from: granted, read off the last layer, or optimised along.

For cross-entropy the last bias gradient of class c is mean(p_c − 1[y = c]): negative exactly
where a label occurs often enough. The last weight gradient is the same, times the features.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakscope.counts import check_rebuildable
from leakscope.errors import UnsuitableError
from leakscope.matching.labels.confidence import LabelGuess
from leakscope.matching.labels.counting import count_labels
from leakscope.matching.labels.inference import RuleName, estimate_count, infer_labels, last_layer_sign, row_minimum
from leakscope.matching.labels.last_layer import check_takes_labels, check_takes_probabilities
from leakscope.matching.labels.noise_response import respond_to_noise
from leakscope.types import Knowledge, Observation


class LabelRule(ABC):
    """Decides the targets of the candidates; None means they are optimised as soft labels."""

    # What the scenario must grant for this rule.
    needs: frozenset[Knowledge] = frozenset()

    @abstractmethod
    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return labels [count], or None for soft labels."""

    def describe(self, seen: Observation, count: int) -> tuple[str, ...]:
        """What there is to say about how the labels were found, as notes for the reconstruction."""
        return ()


@dataclass(frozen=True)
class Known(LabelRule):
    """Labels granted by the scenario."""

    needs = frozenset({Knowledge.LABELS})

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return the granted labels."""
        return seen.targets


@dataclass(frozen=True)
class Soft(LabelRule):
    """DLG: label logits are optimised together with the inputs; granted labels are not used."""

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """No fixed labels."""
        check_takes_probabilities(seen)
        return None


@dataclass(frozen=True)
class LastLayerSign(LabelRule):
    """iDLG: the class with the most negative last-layer gradient, exact for one example; the granted label if any."""

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return the label of the single example behind the update."""
        if count != 1:
            raise UnsuitableError(
                f"the sign of the last layer tells the label of one example per update, got {count} examples; "
                "use inverting-gradients, geng or gradinversion, which find several"
            )
        return seen.targets if seen.targets is not None else _usable(seen, last_layer_sign(seen))

    def describe(self, seen: Observation, count: int) -> tuple[str, ...]:
        """Say where the sign proves nothing."""
        return () if seen.targets is not None else last_layer_sign(seen).notes


@dataclass(frozen=True)
class RowMinimum(LabelRule):
    """Yin et al.: the classes with the smallest entries in their last-layer rows, each once."""

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return `count` different labels."""
        return _usable(seen, row_minimum(seen, count))

    def describe(self, seen: Observation, count: int) -> tuple[str, ...]:
        """Say where features may be negative."""
        return row_minimum(seen, count).notes


@dataclass(frozen=True)
class DistinctFirst(LabelRule):
    """GradInversion: the granted labels, else row minimum, else what `infer_labels` reads.

    Row minimum is for features that are never negative, and for different labels. They must repeat where there are
    more examples than classes, or than rows that prove their class.
    """

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return granted or inferred labels."""
        return seen.targets if seen.targets is not None else _usable(seen, self._guess(seen, count))

    def describe(self, seen: Observation, count: int) -> tuple[str, ...]:
        """Say so where counting took the place of row minimum, and what the rule has to add."""
        return () if seen.targets is not None else self._guess(seen, count).notes

    @staticmethod
    def _guess(seen: Observation, count: int) -> LabelGuess:
        if seen.num_classes == 1 or (count <= seen.num_classes and not respond_to_noise(seen).non_negative):
            guess = infer_labels(seen, count=count)
            return _because("labels may repeat, and negative features rule out row minimum", guess)
        guess = row_minimum(seen, count) if count <= seen.num_classes else None
        if guess is not None and bool((guess.confidence > 0).all()):
            return guess
        return _because("labels repeat, which row minimum cannot find", count_labels(seen, count))


@dataclass(frozen=True)
class Inferred(LabelRule):
    """The granted labels where the scenario has them, else what one rule of `infer_labels` reads.

    One label is read by its sign whatever the rule: that is exact, and needs no estimate.
    """

    rule: RuleName = "auto"

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return granted or inferred labels."""
        return seen.targets if seen.targets is not None else _usable(seen, self._guess(seen, count))

    def describe(self, seen: Observation, count: int) -> tuple[str, ...]:
        """What the rule has to say about labels that it read."""
        return () if seen.targets is not None else self._guess(seen, count).notes

    def _guess(self, seen: Observation, count: int) -> LabelGuess:
        return infer_labels(seen, count=count, rule="auto" if count == 1 else self.rule)


def count_examples(seen: Observation, assumed: int | None, *, attack: str) -> int:
    """How many examples to rebuild: what the scenario grants, else what the attack assumes, else an estimate."""
    if granted := seen.num_examples or assumed:
        numbers = sum(value.numel() for value in seen.update.tensors.values())
        check_rebuildable(granted, size=math.prod(seen.input_shape), numbers=numbers)
        return granted
    try:
        return estimate_count(seen)
    except UnsuitableError as error:
        raise UnsuitableError(
            f"attack {attack!r} must know how many examples to rebuild: the scenario does not say, and {error}; "
            "give num_examples=, or use a scenario that grants the number"
        ) from None


def resolve_all(rule: LabelRule, seen: Sequence[Observation], count: int) -> Tensor | None:
    """Labels [victims, count], or None where they are optimised."""
    each = [rule.resolve(one, count) for one in seen]
    kept = [labels for labels in each if labels is not None]
    return torch.stack(kept) if kept else None


def _usable(seen: Observation, guess: LabelGuess) -> Tensor:
    """The labels, where the loss can be replayed with them."""
    check_takes_labels(seen)
    return guess.labels


def _because(reason: str, guess: LabelGuess) -> LabelGuess:
    """Say why labels were counted, where they were."""
    if guess.rule != "counting":
        return guess
    return replace(guess, notes=(f"{reason}: they were counted", *guess.notes))
