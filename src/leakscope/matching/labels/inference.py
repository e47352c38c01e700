"""`infer_labels`: one label by sign, different ones by row minimum, and repeated ones by counting.

For cross-entropy and one example the gradient of the logits is p − y: negative at the label alone.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from leakscope.counts import MOST_LABELS, check_count
from leakscope.errors import UnsuitableError, UsageError, suggest
from leakscope.matching.labels.confidence import LabelGuess, find_doubt, proof_limits
from leakscope.matching.labels.counting import count_by_row_sums, count_labels
from leakscope.matching.labels.last_layer import check_readable, last_layer
from leakscope.matching.labels.noise_response import respond_to_noise
from leakscope.types import Observation

RuleName = Literal["auto", "sign", "row-minimum", "counting", "geng"]
_RULES = ("auto", "sign", "row-minimum", "counting", "geng")
_COIN = "no bias gradient, and features of both signs: the label of {} is a guess"


def last_layer_sign(seen: Observation) -> LabelGuess:
    """One label: the most negative class. Confidence is its share of all that is negative.

    Without a bias gradient the rows of ∂L/∂W = (p − y) fᵀ tell the same for features f of any sign:
    all rows point one way and the label's points the other. Two rows are always opposite: which of them is
    the label's only features that are never negative tell.
    """
    check_readable(seen)
    signal = class_signal(seen, one_example=True)
    if len(signal) == 1:
        return _of_one_logit(seen, signal)
    label = signal.argmin()
    negative = (-signal).clamp_min(0)
    share = negative[label] / negative.sum().clamp_min(torch.finfo(signal.dtype).tiny)
    if len(signal) == 2 and not _sign_proven(seen):
        return LabelGuess(
            label[None], torch.full_like(share[None], 0.5).float(), "last-layer sign", (_COIN.format("two classes"),)
        )
    return LabelGuess(label[None], share[None].float(), "last-layer sign")


def _of_one_logit(seen: Observation, signal: Tensor) -> LabelGuess:
    """A logistic loss of one logit has the gradient σ(z) − y: negative for label 1 and for no other."""
    proven = _sign_proven(seen)
    notes = () if proven else (_COIN.format("one logit"),)
    confidence = torch.full_like(signal, 1.0 if proven else 0.5).float()
    return LabelGuess((signal < 0).long(), confidence, "last-layer sign", notes)


def _sign_proven(seen: Observation) -> bool:
    return last_layer(seen)[1] is not None or respond_to_noise(seen).non_negative


def row_minimum(seen: Observation, count: int) -> LabelGuess:
    """The `count` classes whose rows hold the smallest entries; assumes different labels.

    With features that are never negative a negative entry proves that its class occurs, so such
    labels have confidence 1. Otherwise confidence compares with the best class left out.
    """
    check_readable(seen)
    weight, _bias = last_layer(seen)
    smallest = weight.amin(dim=1)
    if count > len(smallest):
        raise UnsuitableError(
            f"row minimum finds each label once: {count} examples need {count} classes, the model has "
            f"{len(smallest)}; use label counting"
        )
    if len(smallest) == 1:
        # One logit has one row, which is not a class; its sign tells the label.
        return last_layer_sign(seen)
    order = smallest.argsort()
    ranked = order[:count].sort()
    chosen = smallest[ranked.values]
    proven = respond_to_noise(seen).non_negative
    confidence = (chosen < -proof_limits(seen).weight).float() if proven else _margin(chosen, smallest[order[count:]])
    notes = () if proven else ("row minimum assumes features that are never negative; this network has negative ones",)
    return LabelGuess(ranked.values, confidence, "row minimum", notes)


def class_signal(seen: Observation, *, one_example: bool = False) -> Tensor:
    """One number per class, negative where the class occurs.

    The bias gradient where there is one. Else the weight gradient along its strongest direction for
    one example, or row sums, which rely on features that are not negative.
    """
    weight, bias = last_layer(seen)
    if bias is not None:
        return bias
    if not one_example or len(weight) < 3:
        return weight.sum(dim=1)
    # |p_y − 1| = Σ p_c: the label's row is the longest, and opposite to all others.
    longest = weight.norm(dim=1).argmax()
    return -(weight @ weight[longest]) / weight[longest].norm().clamp_min(torch.finfo(weight.dtype).tiny)


def _margin(chosen: Tensor, left_out: Tensor) -> Tensor:
    rival = -left_out.min() if len(left_out) else chosen.new_zeros(())
    own, other = (-chosen).clamp_min(0), rival.clamp_min(0)
    return (own / (own + other).clamp_min(torch.finfo(chosen.dtype).tiny)).float()


def infer_labels(seen: Observation, *, count: int | None = None, rule: RuleName = "auto") -> LabelGuess:
    """Read the labels off an update: by sign for one example, by counting for more.

    `count` is the number of examples where it is known; otherwise as many as classes with a
    negative gradient. One logit of a logistic loss tells one label, 0 or 1, by its sign whatever the rule.

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
    if count is not None and (not isinstance(count, int) or count < 1):
        raise UsageError(f"count is a whole number of labels ≥ 1, or None where it is unknown; got {count!r}")
    number = count or seen.num_examples or estimate_count(seen)
    check_count(number, "the number of labels to read off an update", most=MOST_LABELS)
    if rule == "sign" and number != 1:
        raise UnsuitableError(
            f"rule 'sign' reads one label, but {number} examples are behind the update; use 'counting'"
        )
    if seen.num_classes == 1 and number > 1:
        raise UnsuitableError(
            f"the gradient of one logit is a sum over {number} examples and tells no label by itself; "
            "use scenario A or B, or an attack that optimises labels (dlg)"
        )
    if rule == "sign" or (number == 1 and (rule == "auto" or seen.num_classes == 1)):
        return last_layer_sign(seen).doubting(find_doubt(seen))
    if rule == "row-minimum":
        return row_minimum(seen, number).doubting(find_doubt(seen))
    return count_by_row_sums(seen, number) if rule == "geng" else count_labels(seen, number)


def estimate_count(seen: Observation) -> int:
    """The least number of examples behind an update: its classes with a negative gradient."""
    return max(1, int((class_signal(seen) < 0).sum()))
