"""The only place that holds a reconstruction and the truth at the same time."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.metrics.assign import assign
from leakscope.metrics.labels import label_correct
from leakscope.metrics.lpips import Network, lpips
from leakscope.metrics.pairs import compute_dtype, require_floating, to_unit_range
from leakscope.metrics.pixel import decibels, mse
from leakscope.metrics.structure import ssim
from leakscope.types import Batch, Reconstruction, Scores

# What an example scores of which nothing usable came back. Finite, so it cannot vanish in an average.
NOTHING_MSE, NOTHING_SSIM, NOTHING_LPIPS = 1.0, 0.0, 1.0


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
    with_lpips: bool = False,
    lpips_weights: str | os.PathLike[str] | None = None,
    lpips_net: Network = "alex",
) -> Scores:
    """Measure a reconstruction against the private examples, one value per example.

    Reconstructions are paired with examples by least total squared error; then MSE, PSNR and
    SSIM are taken on values mapped from `truth.bounds` to [0, 1] and clamped. An example
    without a partner, or whose partner holds NaN or Inf, scores MSE 1, PSNR 0, SSIM 0
    (LPIPS 1). SSIM is NaN for all examples where the inputs are not images [n, C, H, W].

    Args:
        rec: What the attack returned; it may hold more or fewer examples than `truth`.
        truth: The private examples.
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
    pairs = _pair(rec, truth)
    errors = _filled(pairs, mse(pairs.guess, pairs.truth), nothing=NOTHING_MSE)
    perceptual = None
    if with_lpips or lpips_weights is not None:
        values = lpips(pairs.guess, pairs.truth, weights=lpips_weights, net=lpips_net)
        perceptual = _filled(pairs, values, nothing=NOTHING_LPIPS)
    return Scores(
        psnr=decibels(errors),
        ssim=_similarity(pairs, len(truth)),
        mse=errors,
        label_correct=_labels(rec, truth, assignment=pairs.assignment),
        assignment=pairs.assignment,
        lpips=perceptual,
    )


def _pair(rec: Reconstruction, truth: Batch) -> _Pairs:
    require_floating(rec.inputs, truth.inputs)
    dtype = compute_dtype(rec.inputs, truth.inputs)
    guesses = to_unit_range(rec.inputs.to(truth.inputs.device, dtype), truth)
    examples = to_unit_range(truth.inputs.to(dtype), truth)
    assignment = assign(guesses, examples)
    usable = assignment >= 0
    usable[usable.clone()] = guesses[assignment[usable]].isfinite().flatten(1).all(1)
    return _Pairs(guesses[assignment[usable]], examples[usable], assignment, usable)


def _filled(pairs: _Pairs, values: Tensor, *, nothing: float) -> Tensor:
    """Spread values of the usable pairs over all examples."""
    spread = torch.full(pairs.usable.shape, nothing, device=values.device, dtype=values.dtype)
    spread[pairs.usable] = values
    return spread


def _similarity(pairs: _Pairs, count: int) -> Tensor:
    if pairs.truth.ndim != 4:
        return torch.full((count,), float("nan"), device=pairs.truth.device, dtype=pairs.truth.dtype)
    return _filled(pairs, ssim(pairs.guess, pairs.truth), nothing=NOTHING_SSIM)


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
