"""What may be said of inferred labels: what is proven, what is likely, and where nothing is known.

A class is *proven* to occur by a negative entry: with softmax cross-entropy the gradient of a logit is p_c − 1[y = c],
so that of a class which does not occur is never negative; nor is a sum of such gradients over the steps of SGD, however
far the weights moved. Everything else is an estimate, and its stated confidence was fitted to how often such labels
were right (docs/papers/labels.md has the table, `benchmarks/label_confidence.py` makes it).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakscope.matching.labels.last_layer import absent_never_negative, find_last_layer, last_layer
from leakscope.observation.consistency import is_suspicion
from leakscope.types import Observation

# Rounding errors of a sum over examples, as a share of the largest entry.
_ROUNDING = 1e-6
# Weights move while they decay, so that what decay did to one is known up to this factor.
_DRIFT = 2.0
# A negative entry proves something if it is this many deviations of the noise below zero.
_DEVIATIONS = 5.0
UNKNOWN = "the confidence of the labels is unknown (NaN): {}"


class Regime(enum.Enum):
    """How good an estimate of the mean prediction is; each has its own calibration."""

    UNTRAINED = "predictions that hardly depend on the input"
    TRAINED = "a network that prefers some class for every input"
    TRAINED_LOCALLY = "the same, with several local steps or an unknown rate"


# Estimated probability → share of labels that were right, at `_PLACES`; never 1, which is for what is proven.
_PLACES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_CALIBRATION: dict[Regime, tuple[float, ...]] = {
    Regime.UNTRAINED: (0.3, 0.5, 0.75, 0.93, 0.97, 0.985, 0.995),
    Regime.TRAINED: (0.2, 0.2, 0.25, 0.27, 0.3, 0.6, 0.97),
    Regime.TRAINED_LOCALLY: (0.3, 0.35, 0.42, 0.7, 0.86, 0.93, 0.97),
}


@dataclass(frozen=True)
class LabelGuess:
    """Inferred labels [n], sorted, each with a confidence in [0, 1]; NaN where nothing is known of it."""

    labels: Tensor
    confidence: Tensor
    rule: str
    notes: tuple[str, ...] = ()

    def doubting(self, reason: str) -> LabelGuess:
        """The same labels with unknown confidence, and why; unchanged where there is no reason."""
        if not reason:
            return self
        unknown = torch.full_like(self.confidence, torch.nan)
        return replace(self, confidence=unknown, notes=(*self.notes, UNKNOWN.format(reason)))


def calibrate(estimated: Tensor, regime: Regime) -> Tensor:
    """The share of labels that were right where this probability was estimated, [n], by linear interpolation."""
    places = torch.tensor(_PLACES, device=estimated.device, dtype=estimated.dtype)
    shares = torch.tensor(_CALIBRATION[regime], device=estimated.device, dtype=estimated.dtype)
    right = torch.searchsorted(places, estimated.clamp(0, 1).contiguous()).clamp(1, len(_PLACES) - 1)
    part = (estimated - places[right - 1]) / (places[right] - places[right - 1])
    return shares[right - 1] + part * (shares[right] - shares[right - 1])


def find_doubt(seen: Observation) -> str:
    """Why no confidence can be stated for this update; empty where it can."""
    if seen.local is not None and seen.update.kind == "delta" and not seen.local.adds_gradients:
        return f"{seen.local.optimiser} rescales every entry, so that neither sign nor size of a sum is kept"
    if not absent_never_negative(seen, find_last_layer(seen)[1]):
        return "with this loss a class that does not occur may have a negative gradient, too"
    return next((note for note in seen.notes if is_suspicion(note)), "")


@dataclass(frozen=True)
class ProofLimits:
    """How far below zero an entry must be to prove its class: per class for the bias, one number for the weight."""

    bias: Tensor
    weight: Tensor


def proof_limits(seen: Observation) -> ProofLimits:
    """Above rounding, above noise and above weight decay.

    Rows of the gradient cancel out exactly, Σ_c ∂L/∂W_c = 0, so what is left of the sum tells the noise of one entry,
    and how far it goes along with the sum of the weights how much they decayed.
    """
    weight, bias = last_layer(seen)
    _name, layer = find_last_layer(seen)
    noise = weight.sum(0).square().mean().sqrt() / len(weight) ** 0.5
    decay = _decay(seen, weight, layer.weight.detach()) if seen.update.kind == "delta" else 0.0
    moved = _DEVIATIONS * noise
    small = decay * layer.weight.detach().abs().max() + moved
    of_weight = torch.maximum(small, _ROUNDING * weight.abs().max())
    if bias is None:
        return ProofLimits(torch.zeros_like(weight[:, 0]), of_weight)
    left = _DEVIATIONS * bias.sum().abs() / len(bias) ** 0.5
    floor = torch.maximum(torch.maximum(moved, left), _ROUNDING * bias.abs().max())
    return ProofLimits(floor + decay * layer.bias.detach().abs(), of_weight)


def _decay(seen: Observation, weight: Tensor, own: Tensor) -> float:
    """λ in Σ_c (∂L/∂W_c + λ W_c) = λ Σ_c W_c by least squares, or what was declared where that is more.

    In scenarios D and E, and where a client did not declare it, nothing else tells of weight decay.
    """
    declared = 0.0 if seen.local is None else seen.local.weight_decay
    sums, along = weight.sum(0), own.to(weight).sum(0)
    if along.norm() <= _ROUNDING * own.norm():
        # Weights that cancel out, or are all zero, show nothing of their decay.
        return declared
    return max(declared, _DRIFT * float(torch.dot(sums, along) / along.square().sum()))
