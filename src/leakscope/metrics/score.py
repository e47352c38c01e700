"""The only place that holds a reconstruction and the truth at the same time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from leakscope.errors import BadInputError, UsageError, suggest
from leakscope.metrics.assign import assign, mse_matrix, solve
from leakscope.metrics.identification import label_correct
from leakscope.metrics.lpips import LPIPS, Backbone, lpips
from leakscope.metrics.metric import Metric
from leakscope.metrics.pairs import compute_dtype, require_floating, to_unit_range
from leakscope.metrics.pixel import MAE, MSE, PSNR
from leakscope.metrics.structure import SSIM
from leakscope.metrics.table import COLUMNS_RECOVERED
from leakscope.metrics.tokens import score_tokens
from leakscope.tasks import Columns
from leakscope.types import Batch, Reconstruction, Scores

# A new metric is a file and an entry here.
METRICS: tuple[Metric, ...] = (PSNR, SSIM, MSE, MAE, LPIPS, COLUMNS_RECOVERED)
DEFAULT = ("psnr", "ssim", "mse")
# What is measured of rows of numbers, which are not pictures, in the place of the default.
OF_ROWS = ("psnr", "mse", "mae", "columns_recovered")


def get_metric(metric: str | Metric) -> Metric:
    """A metric by its name; one that is a value already is returned as it is."""
    if isinstance(metric, Metric):
        return metric
    table = {one.name: one for one in METRICS}
    if metric not in table:
        raise UsageError(f"unknown metric {metric!r}.{suggest(metric, table)}")
    return table[metric]


@dataclass(frozen=True)
class _Pairs:
    """Reconstructions beside their examples; only rows in `usable` hold a comparable pair."""

    guess: Tensor
    truth: Tensor
    assignment: Tensor
    usable: Tensor


@torch.no_grad()
def score(
    rec: Reconstruction,
    truth: Batch,
    *,
    metrics: Sequence[str | Metric] = DEFAULT,
    with_lpips: bool = False,
    lpips_weights: str | os.PathLike[str] | None = None,
    lpips_net: Backbone = "alex",
) -> Scores:
    """Measure a reconstruction against the private examples, one value per example.

    Reconstructions are paired with examples by least total squared error; then every metric is
    taken on values mapped from `truth.bounds` to [0, 1] and clamped. An example without a
    partner, or whose partner holds NaN or Inf, scores what `Metric.nothing` says: MSE 1, PSNR 0,
    SSIM 0, LPIPS 1. Metrics of images are NaN where the inputs are not images [n, C, H, W]; by default they are left
    out there, and rows of a table get their share of recovered columns instead.

    Args:
        rec: What the attack returned; it may hold more or fewer examples than `truth`.
        truth: The private examples.
        metrics: What to measure, by name or as a `Metric` of one's own.
        with_lpips: Measure LPIPS as well; implied by `lpips_weights`.
        lpips_weights: Weights file, see `leakscope.metrics.lpips`.
        lpips_net: Network behind LPIPS, "alex" or "vgg".

    Returns:
        Scores with tensors [n] on the device of `truth`.

    Example:
        >>> from leakscope.types import Status
        >>> images, labels = torch.rand(2, 1, 8, 8), torch.tensor([0, 1])
        >>> found = Reconstruction(images.flip(0), labels.flip(0), loss=0.0, status=Status.OK)
        >>> score(found, Batch(images, labels)).psnr.tolist()
        [150.0, 150.0]
    """
    if not truth.inputs.is_floating_point() and rec.tokens is not None:
        return score_tokens(rec, truth)
    names = metrics if metrics != DEFAULT or truth.inputs.ndim == 4 else _usual_without_pictures(truth)
    chosen = {one.name: one for one in map(get_metric, names)}
    if with_lpips or lpips_weights is not None or "lpips" in chosen:
        chosen["lpips"] = replace(LPIPS, function=partial(lpips, weights=lpips_weights, net=lpips_net))
    pairs = _pair(rec, truth)
    return Scores(
        metrics={name: _measure(metric, pairs) for name, metric in chosen.items()},
        label_correct=_labels(rec, truth, assignment=pairs.assignment),
        assignment=pairs.assignment,
    )


@torch.no_grad()
def score_trained(
    rec: Reconstruction,
    truth: Batch,
    trained: Sequence[Batch],
    *,
    metrics: Sequence[str | Metric] = DEFAULT,
    with_lpips: bool = False,
) -> Scores:
    """Measure a reconstruction against what the network was trained on, where a defence transformed the examples.

    Each example counts by the pass that came closest: reconstructions are paired with examples by the least error over
    the passes, and every metric is then taken against that pass.

    Args:
        rec: What the attack returned.
        truth: The private examples as they are; their labels are the ones that count.
        trained: What each pass over the data saw, every one with the examples of `truth` in the same order.
        metrics: What to measure, as in `score`.
        with_lpips: Measure LPIPS as well.
    """
    if not trained or any(one.inputs.shape != truth.inputs.shape for one in trained):
        raise BadInputError(
            f"score_trained needs batches of the examples' shape {list(truth.inputs.shape)}, got "
            f"{[list(one.inputs.shape) for one in trained]}; give one batch for every pass, in the order of the truth"
        )
    # The range stays that of the truth: a transform may leave it, and metrics clamp to it.
    bounds = truth.bounds or (float(truth.inputs.min()), float(truth.inputs.max()))
    inputs = _nearest_pass(rec, truth, trained)
    kept = bounds.decode(inputs) if isinstance(bounds, Columns) else inputs.clamp(*bounds)
    nearest = Batch(kept, truth.targets, bounds)
    return score(rec, nearest, metrics=metrics, with_lpips=with_lpips)


def _nearest_pass(rec: Reconstruction, truth: Batch, trained: Sequence[Batch]) -> Tensor:
    """Of every example, the inputs of the pass that is nearest to the reconstruction it is paired with, [n, …]."""
    passes = torch.stack([one.inputs for one in trained])
    guesses = to_unit_range(rec.inputs.to(passes), truth)
    errors = torch.stack([mse_matrix(guesses, to_unit_range(one, truth)) for one in passes])
    pairing = solve(errors.amin(0))
    rows = torch.arange(len(pairing), device=pairing.device)
    # An example without a partner scores the same against any pass.
    best = errors[:, rows, pairing.clamp_min(0)].argmin(0)
    return passes[best, rows]


def _usual_without_pictures(truth: Batch) -> Sequence[str]:
    """The default where inputs are not pictures: nothing that only pictures have."""
    return OF_ROWS if truth.inputs.ndim == 2 else tuple(name for name in DEFAULT if name != "ssim")


def _pair(rec: Reconstruction, truth: Batch) -> _Pairs:
    require_floating(rec.inputs, truth.inputs)
    dtype = compute_dtype(rec.inputs, truth.inputs)
    guesses = to_unit_range(rec.inputs.to(truth.inputs.device, dtype), truth)
    examples = to_unit_range(truth.inputs.to(dtype), truth)
    assignment = assign(guesses, examples)
    usable = assignment >= 0
    usable[usable.clone()] = guesses[assignment[usable]].isfinite().flatten(1).all(1)
    return _Pairs(guesses[assignment[usable]], examples[usable], assignment, usable)


def _measure(metric: Metric, pairs: _Pairs) -> Tensor:
    """Values of the usable pairs, spread over all examples."""
    measurable = not metric.images_only or pairs.truth.ndim == 4
    empty = metric.nothing if measurable else float("nan")
    spread = torch.full(pairs.usable.shape, empty, device=pairs.truth.device, dtype=pairs.truth.dtype)
    if measurable:
        spread[pairs.usable] = metric(pairs.guess, pairs.truth)
    return spread


def _labels(rec: Reconstruction, truth: Batch, *, assignment: Tensor) -> Tensor:
    """A label counts even where the picture beside it broke: the class was still given away."""
    correct = torch.zeros(len(truth), dtype=torch.bool, device=assignment.device)
    guessed = rec.targets
    if guessed is None and rec.target_probabilities is not None:
        guessed = rec.target_probabilities.argmax(-1)
    if guessed is None:
        return correct
    if len(guessed) != len(rec.inputs):
        raise BadInputError(
            f"a Reconstruction needs one target per input, got {len(guessed)} targets for {len(rec.inputs)} inputs"
        )
    paired = assignment >= 0
    guessed, expected = guessed.to(assignment.device), truth.targets.to(assignment.device)
    correct[paired] = label_correct(guessed[assignment[paired]], expected[paired])
    return correct
