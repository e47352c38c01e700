"""Labels with repeats, by counting: the logits' mean gradient is p̄_c − n_c/n for class c.

So n_c = n (p̄_c − ∂L/∂b_c) with p̄ the mean prediction, which the attacker estimates on made-up
images: the offset of Wainakh et al., measured on random inputs, with the impact of one label
known exactly (1/n). Without a bias, the weight gradient along a direction in which features hardly
vary takes the bias gradient's place; Geng et al. use the row sums for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.matching.labels.apportion import apportion as apportion  # callers know it from here
from leakscope.matching.labels.confidence import LabelGuess, Regime, calibrate, find_doubt, proof_limits
from leakscope.matching.labels.last_layer import check_readable, last_layer
from leakscope.matching.labels.noise_response import NoiseResponse, respond_to_noise
from leakscope.matching.replays.replay import count_local_steps, scale_known
from leakscope.types import Observation

# What rounding and local drift leave uncertain in a count even where predictions are constant.
_LEAST_DOUBT = 0.1
_TOO_FEW = "the update shows more classes than there are examples"
# Relative error of a rate that is inferred; and how exact counts must be to infer it.
_SCALE_ERROR = 0.2
_WHOLENESS = 0.03


@dataclass(frozen=True)
class _Evidence:
    """Expected occurrences with their deviation, and the least each class must have, all [classes]."""

    expected: Tensor
    deviation: Tensor
    least: Tensor


def count_labels(seen: Observation, count: int) -> LabelGuess:
    """Counting by the bias gradient, or by its stand-in from the weights where there is no bias.

    A class with a negative bias gradient occurs; so does one with a negative entry in its row where
    features are never negative. Where predictions on noise do not carry over to data, as with a trained
    network, an even mean prediction is assumed and confidence falls.
    """
    check_readable(seen)
    weight, bias = last_layer(seen)
    response = respond_to_noise(seen)
    signal, wobble = (bias, 0.0) if bias is not None else _along(weight, _steady_direction(response), response)
    limits = proof_limits(seen)
    present = signal < -limits.bias if bias is not None else torch.zeros_like(signal, dtype=torch.bool)
    if response.non_negative:
        present = present | (weight.amin(1) < -limits.weight)
    notes = ("the network is trained: its predictions on the data are unknown",) if response.discerning else ()
    return _guess(seen, signal, response, count=count, present=present, rule="counting", wobble=wobble, notes=notes)


def count_by_row_sums(seen: Observation, count: int) -> LabelGuess:
    """Geng et al.: n_c = n (p̄_c − Σ_j ∂L/∂W_cj / Ō), p̄ and the summed features Ō from random inputs."""
    check_readable(seen)
    weight, _bias = last_layer(seen)
    response = respond_to_noise(seen)
    signal, wobble = _along(weight, torch.ones_like(weight[0]), response)
    nothing = torch.zeros_like(signal, dtype=torch.bool)
    return _guess(seen, signal, response, count=count, present=nothing, rule="geng", wobble=wobble)


def _guess(
    seen: Observation,
    signal: Tensor,
    response: NoiseResponse,
    *,
    count: int,
    present: Tensor,
    rule: str,
    wobble: float = 0.0,
    notes: tuple[str, ...] = (),
) -> LabelGuess:
    least = present.to(signal.dtype) if int(present.sum()) <= count else torch.zeros_like(signal)
    mean = response.mean
    # Predictions of n examples average out; that data differs from noise does not.
    deviation = count * ((1 / count + 0.1) * response.deviation.square() + response.drift.square()).sqrt()
    scale = 1.0 if scale_known(seen) else _scale(signal, response, deviation, count=count)
    change = count * signal / scale
    factor_error = wobble**2 + (0.0 if scale_known(seen) else _SCALE_ERROR**2)
    deviation = (deviation.square() + factor_error * change.square()).sqrt() + _LEAST_DOUBT
    evidence = _Evidence(count * mean - change, deviation, least)
    counts = apportion(evidence.expected, count, least=least)
    labels = torch.arange(len(counts), device=counts.device).repeat_interleave(counts.long())
    confidence = calibrate(_confidence(evidence, counts, count), _regime(seen, response))
    # The first label of a class that is proven to occur needs no estimate.
    first = torch.cat([torch.arange(int(number), device=counts.device) for number in counts.tolist()]) == 0
    confidence = torch.where(first & (least[labels] > 0), 1.0, confidence)
    doubt = find_doubt(seen) or ("" if int(present.sum()) <= count else _TOO_FEW)
    if not bool(response.predictions.isfinite().all()):
        doubt = "local training moved the network to where its predictions are not finite"
    return LabelGuess(labels, confidence, rule, notes).doubting(doubt)


def _regime(seen: Observation, response: NoiseResponse) -> Regime:
    if not response.sure:
        return Regime.UNTRAINED
    return Regime.TRAINED if scale_known(seen) and count_local_steps(seen) == 1 else Regime.TRAINED_LOCALLY


def _confidence(evidence: _Evidence, counts: Tensor, count: int) -> Tensor:
    """P(class occurs at least j times) for its j-th label: normal error about the expected count."""
    numbers = torch.arange(count + 1, device=counts.device, dtype=counts.dtype)
    each: list[Tensor] = []
    # Class by class: a table of all classes and all numbers would take gigabytes.
    for c in counts.nonzero().flatten().tolist():
        distance = (numbers - evidence.expected[c]) / evidence.deviation[c]
        allowed = numbers >= evidence.least[c]
        weights = torch.where(allowed, -0.5 * distance.square(), torch.full_like(distance, -torch.inf)).softmax(0)
        at_least = weights.flip(0).cumsum(0).flip(0).clamp_max(1.0)
        each.append(at_least[1 : int(counts[c]) + 1])
    return torch.cat(each).float()


def _scale(signal: Tensor, response: NoiseResponse, deviation: Tensor, *, count: int) -> float:
    """The unknown rate × steps of a delta: the factor under which all counts are nearest to whole numbers.

    A class that does not occur has signal = scale · p̄_c, and any other less: that bounds the search. With
    fewer examples than classes some class is absent, so the bound is the scale, up to noise.
    """
    mean = response.mean
    telling = (signal > 0) & (mean > 1e-4)
    if not bool(telling.any()):
        return float(signal.abs().max().clamp_min(torch.finfo(signal.dtype).tiny))
    anchor = float((signal / mean)[telling].median())
    highest = 100.0 if response.discerning else 1.25 if count < len(signal) else 4.0
    factors = torch.logspace(-0.1, math.log10(highest), 400, dtype=signal.dtype, device=signal.device)
    expected = count * (mean[None] - signal[None] / (anchor * factors[:, None]))
    whole = expected.round().clamp_min(0)
    misfit = ((expected - whole) / (deviation + _WHOLENESS)).square().sum(1) / 2
    # Among equal fits the likelier split of `count` examples over classes wins.
    misfit = misfit + torch.lgamma(whole + 1).sum(1)
    return anchor * float(factors[misfit.argmin()])


def _along(weight: Tensor, direction: Tensor, response: NoiseResponse) -> tuple[Tensor, float]:
    """The weight gradient along `direction` in units of the features there, and how far those vary."""
    reached = response.features @ direction
    middle = reached.mean()
    if float(middle.abs()) < 1e-9:
        return weight @ direction, 1.0
    return weight @ direction / middle, float(reached.std(unbiased=False) / middle.abs())


def _steady_direction(response: NoiseResponse) -> Tensor:
    """The direction u with f·u ≈ 1 for every feature vector f: ridge regression of 1 on the features."""
    features = response.features
    gram = features @ features.T
    ridge = 0.1 * gram.diagonal().mean().clamp_min(1e-12)
    ones = features.new_ones(len(features), 1)
    eye = torch.eye(len(features), device=features.device, dtype=features.dtype)
    return (features.T @ torch.linalg.solve(gram + ridge * eye, ones))[:, 0]
