"""Axis 1: where labels come from: granted, read off the last layer, or optimised along.

For cross-entropy the last bias gradient of class c is mean(p_c − 1[y = c]): negative exactly
where a label occurs often enough. The last weight gradient is the same, times the features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor

from leakscope.errors import UnsuitableError, UsageError, suggest
from leakscope.matching.label_rules.counting import count_by_row_sums, count_labels
from leakscope.matching.label_rules.guess import LabelGuess
from leakscope.matching.label_rules.layer import last_layer
from leakscope.matching.label_rules.single import class_signal, last_layer_sign, row_minimum
from leakscope.types import Knowledge, Observation

__all__ = [
    "AsGranted",
    "DistinctFirst",
    "ExplainsLabels",
    "Inferred",
    "Known",
    "LabelGuess",
    "LabelRule",
    "LastLayerSign",
    "RowMinimum",
    "Soft",
    "count_by_row_sums",
    "count_labels",
    "estimate_count",
    "infer_labels",
    "last_layer",
    "last_layer_sign",
    "row_minimum",
]

RuleName = Literal["auto", "sign", "row-minimum", "counting", "geng"]
_RULES = ("auto", "sign", "row-minimum", "counting", "geng")


class LabelRule(Protocol):
    """Decides the targets of the candidates; None means they are optimised as soft labels."""

    @property
    def needs(self) -> frozenset[Knowledge]:
        """What the scenario must grant for this rule."""
        ...

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return labels [count], or None for soft labels."""
        ...


@runtime_checkable
class ExplainsLabels(Protocol):
    """A rule that has something to say about how it came to its labels."""

    def describe(self, seen: Observation, count: int) -> tuple[str, ...]:
        """Return notes for the reconstruction."""
        ...


@dataclass(frozen=True)
class Known:
    """Labels granted by the scenario."""

    @property
    def needs(self) -> frozenset[Knowledge]:
        """The labels."""
        return frozenset({Knowledge.LABELS})

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return the granted labels."""
        return seen.targets


@dataclass(frozen=True)
class Soft:
    """DLG: label logits are optimised together with the inputs; granted labels are not used."""

    needs: frozenset[Knowledge] = frozenset()

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """No fixed labels."""
        return None


@dataclass(frozen=True)
class LastLayerSign:
    """iDLG: the class with the most negative last-layer gradient. Exact for one example."""

    needs: frozenset[Knowledge] = frozenset()

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return the label of the single example behind the update."""
        if count != 1:
            raise UnsuitableError(f"last-layer sign needs one example per update, got {count}; use row minimum")
        return last_layer_sign(seen).labels


@dataclass(frozen=True)
class RowMinimum:
    """Yin et al.: the classes with the smallest entries in their last-layer rows, each once."""

    needs: frozenset[Knowledge] = frozenset()

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return `count` different labels."""
        return row_minimum(seen, count).labels


@dataclass(frozen=True)
class DistinctFirst:
    """GradInversion: the granted labels, else row minimum, else counting where labels must repeat.

    They must where there are more examples than classes, or than rows that prove their class.
    """

    needs: frozenset[Knowledge] = frozenset()

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return granted or inferred labels."""
        return seen.targets if seen.targets is not None else self._guess(seen, count).labels

    def describe(self, seen: Observation, count: int) -> tuple[str, ...]:
        """Say so where counting took the place of row minimum."""
        if seen.targets is not None or self._guess(seen, count).rule == "row minimum":
            return ()
        return ("labels repeat, which row minimum cannot find: they were counted",)

    @staticmethod
    def _guess(seen: Observation, count: int) -> LabelGuess:
        if count > seen.num_classes:
            return count_labels(seen, count)
        guess = row_minimum(seen, count)
        return guess if bool((guess.confidence > 0).all()) else count_labels(seen, count)


@dataclass(frozen=True)
class Inferred:
    """The granted labels where the scenario has them, else what one rule of `infer_labels` reads.

    One label is read by its sign whatever the rule: that is exact, and needs no estimate.
    """

    rule: RuleName = "auto"
    needs: frozenset[Knowledge] = frozenset()

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return granted or inferred labels."""
        if seen.targets is not None:
            return seen.targets
        return infer_labels(seen, count=count, rule="auto" if count == 1 else self.rule).labels


@dataclass(frozen=True)
class AsGranted:
    """The granted labels where the scenario has them, else what `infer_labels` reads."""

    needs: frozenset[Knowledge] = frozenset()

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return granted or inferred labels."""
        return seen.targets if seen.targets is not None else infer_labels(seen, count=count).labels


def infer_labels(seen: Observation, *, count: int | None = None, rule: RuleName = "auto") -> LabelGuess:
    """Read the labels off an update: by sign for one example, by counting for more.

    `count` is the number of examples where it is known; otherwise as many as classes with a
    negative gradient.

    Args:
        seen: What the server sees; the last layer must be among what was shared.
        count: How many labels to return.
        rule: "auto" is "sign" for one example and "counting" for more; "row-minimum" finds different
            labels only; "geng" counts by row sums of the weight gradient.

    Example:
        >>> infer_labels(seen).labels          # doctest: +SKIP
        tensor([3])
    """
    if rule not in _RULES:
        raise UsageError(f"unknown label rule {rule!r}.{suggest(rule, _RULES)}")
    number = count or seen.num_examples or estimate_count(seen)
    if rule == "sign" and number != 1:
        raise UnsuitableError(
            f"rule 'sign' reads one label, but {number} examples are behind the update; use 'counting'"
        )
    if seen.num_classes == 1 and number > 1:
        raise UnsuitableError(
            f"the gradient of one logit is a sum over {number} examples and tells no label by itself; "
            "use scenario A or B, or an attack that optimises labels (dlg)"
        )
    if rule == "sign" or (rule == "auto" and number == 1):
        return last_layer_sign(seen)
    if rule == "row-minimum":
        return row_minimum(seen, number)
    return count_by_row_sums(seen, number) if rule == "geng" else count_labels(seen, number)


def estimate_count(seen: Observation) -> int:
    """The least number of examples behind an update: its classes with a negative gradient."""
    return max(1, int((class_signal(seen) < 0).sum()))
