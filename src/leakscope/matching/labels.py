"""Axis 1: where labels come from: granted, read off the last layer, or optimised along.

For cross-entropy the last bias gradient of class c is mean(p_c − 1[y = c]): negative exactly
where a label occurs often enough. The last weight gradient is the same, times the features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from leakscope.errors import UnsuitableError
from leakscope.types import Knowledge, Observation


@dataclass(frozen=True)
class LabelGuess:
    """Inferred labels [n], sorted, each with a confidence in [0, 1]."""

    labels: Tensor
    confidence: Tensor
    rule: str


class LabelRule(Protocol):
    """Decides the targets of the candidates; None means they are optimised as soft labels."""

    @property
    def needs(self) -> frozenset[Knowledge]:
        """What the scenario must grant for this rule."""
        ...

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return labels [count], or None for soft labels."""
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
class AsGranted:
    """The granted labels where the scenario has them, else what `infer_labels` reads."""

    needs: frozenset[Knowledge] = frozenset()

    def resolve(self, seen: Observation, count: int) -> Tensor | None:
        """Return granted or inferred labels."""
        return seen.targets if seen.targets is not None else infer_labels(seen, count=count).labels


def infer_labels(seen: Observation, *, count: int | None = None) -> LabelGuess:
    """Read the labels off an update: by sign for one example, by counting for more.

    `count` is the number of examples where it is known; otherwise as many as classes with a
    negative gradient.

    Example:
        >>> infer_labels(seen).labels          # doctest: +SKIP
        tensor([3])
    """
    number = count or seen.num_examples or estimate_count(seen)
    if number == 1:
        return last_layer_sign(seen)
    _weight, bias = last_layer(seen)
    if bias is None:
        return row_minimum(seen, number)
    return count_by_bias(seen, number)


def estimate_count(seen: Observation) -> int:
    """The least number of examples behind an update: its classes with a negative gradient."""
    return max(1, int((_class_signal(seen) < 0).sum()))


def last_layer_sign(seen: Observation) -> LabelGuess:
    """One label: the most negative class. Confidence 1 where it is the only negative one."""
    signal = _class_signal(seen)
    label = signal.argmin()
    negative = (-signal).clamp_min(0)
    share = negative[label] / negative.sum().clamp_min(torch.finfo(signal.dtype).tiny)
    return LabelGuess(label[None], share[None].float(), "last-layer sign")


def row_minimum(seen: Observation, count: int) -> LabelGuess:
    """The `count` classes whose rows hold the smallest entries; assumes different labels."""
    weight, _bias = last_layer(seen)
    smallest = weight.amin(dim=1)
    if count > len(smallest):
        raise UnsuitableError(
            f"row minimum finds each label once: {count} examples need {count} classes, the model has "
            f"{len(smallest)}; use label counting"
        )
    order = smallest.argsort()[:count]
    confidence = (smallest[order] < 0).float()
    ranked = order.sort()
    return LabelGuess(ranked.values, confidence[ranked.indices], "row minimum")


def count_by_bias(seen: Observation, count: int) -> LabelGuess:
    """Labels with repeats: occurrences of c ≈ n (p̄_c − ∂L/∂b_c), rounded to sum to n.

    p̄ is the model's mean prediction, estimated on grey noise: the attacker has no data.
    """
    _weight, bias = last_layer(seen)
    assert bias is not None
    prediction = _mean_prediction(seen)
    expected = count * (prediction - _rescaled(seen, bias, prediction))
    whole = expected.clamp_min(0).floor()
    excess = expected - whole
    missing = count - int(whole.sum())
    step = 1 if missing > 0 else -1
    for _ in range(abs(missing)):
        movable = excess if step > 0 else torch.where(whole > 0, -excess, torch.full_like(excess, -torch.inf))
        chosen = movable.argmax()
        whole[chosen] += step
        excess[chosen] -= step
    labels = torch.arange(len(whole), device=whole.device).repeat_interleave(whole.long())
    doubt = (expected - whole).abs().clamp_max(1.0)
    return LabelGuess(labels, (1 - doubt)[labels].float(), "bias counting")


def _rescaled(seen: Observation, bias: Tensor, prediction: Tensor) -> Tensor:
    """The bias gradient in its own units, also where the rate behind a delta is unknown.

    A class that does not occur has ∂L/∂b_c = p̄_c, so those classes tell the unknown factor.
    """
    absent = bias > 0
    if seen.update.kind == "gradient" or seen.local is not None or not bool(absent.any()):
        return bias
    return bias / (bias / prediction)[absent].median()


def last_layer(seen: Observation) -> tuple[Tensor, Tensor | None]:
    """Weight and bias *gradient* of the layer that produces the logits, mean over examples.

    A delta is turned into a gradient by its sign, and by rate and steps where granted.
    """
    for name, module in reversed(list(seen.model.named_modules())):
        if isinstance(module, nn.Linear) and module.out_features == seen.num_classes:
            prefix = f"{name}." if name else ""
            weight = seen.update.tensors.get(f"{prefix}weight")
            if weight is None:
                break
            bias = seen.update.tensors.get(f"{prefix}bias")
            factor = _delta_factor(seen)
            return weight * factor, None if bias is None else bias * factor
    raise UnsuitableError(
        f"labels cannot be read off this update: no shared linear layer with {seen.num_classes} outputs; "
        "share the last layer, use scenario A or B, or an attack that optimises labels (dlg)"
    )


def _delta_factor(seen: Observation) -> float:
    if seen.update.kind == "gradient":
        return 1.0
    return -1.0 if seen.local is None else -1.0 / (seen.local.lr * seen.local.steps)


def _class_signal(seen: Observation) -> Tensor:
    """One number per class, negative where the class occurs.

    The bias gradient where there is one; row sums rely on features that are not negative.
    """
    weight, bias = last_layer(seen)
    return weight.sum(dim=1) if bias is None else bias


def _mean_prediction(seen: Observation) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    noise = torch.rand((16, *seen.input_shape), generator=rng).to(device=seen.device, dtype=seen.dtype)
    state = {name: value.clone() for name, value in seen.model.named_buffers()}
    with torch.no_grad():
        return torch.func.functional_call(seen.model, state, (noise,)).softmax(1).mean(0)
