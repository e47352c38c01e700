"""S_pri: how alike the gradients are on the way from noise to the transformed picture. Lower is more private."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope import rng as random
from leakscope.counts import check_count
from leakscope.defences.transforms.gradient_products import gradient_products
from leakscope.defences.transforms.policy import apply, check_pictures
from leakscope.errors import UsageError
from leakscope.operations.policy import Policy
from leakscope.types import Batch, Loss

Variant = Literal["released", "paper"]
VARIANTS: tuple[Variant, ...] = ("released", "paper")
BINS = 20
# A coarse score takes every fifth of the 21 points.
COARSE = 5
_MOST_BINS = 10_000


def privacy_scores(
    policy: str | Policy,
    batch: Batch,
    *,
    model: nn.Module,
    variant: Variant = "released",
    seed: int = 0,
    places: Sequence[int] | None = None,
    bins: int = BINS,
    every: int = 1,
    loss: Loss = functional.cross_entropy,
) -> Tensor:
    """S_pri of every picture, [n] in float64; the policy's score is their mean.

    A straight line leads from uniform noise to T(x), in pixels; the model normalises if it does. With g(t) the
    gradient at a share t of the way and K bins,

        released:  mean over tensors of cos(g(t), g(1)), integrated by the trapezoid rule
        paper:     cos(g(t), g(1)) of the whole gradient, summed over t = 0, 1/K, …, (K−1)/K and divided by K

    A coarse score (`every`) estimates the same integral from fewer of the points.

    Noise and coins depend on `seed` and on a picture's place alone, so every policy meets the same ones.

    Args:
        policy: what transforms the pictures.
        batch: pictures in [0, 1] with their labels, which the attacker knows.
        model: evaluated in evaluation mode, whatever mode it is in; it stays as it is.
        variant: "released" as the published code computes it, "paper" as the papers write it.
        seed: of noise and coins.
        places: numbers of the pictures; 0, 1, … unless given. A picture keeps its draw when it comes in other company.
        bins: intervals between noise and picture.
        every: with 5, every fifth point only; it divides `bins`.
        loss: any positive multiple of it gives the same score.

    References:
        Gao et al., CVPR 2021, section 4.2; the released code averages cosines over tensors instead.
    """
    check_variant(variant)
    check_count(bins, "bins", most=_MOST_BINS)
    check_every(every, bins)
    check_pictures(batch.inputs)
    numbers = range(len(batch.inputs)) if places is None else places
    scores = []
    for number, picture, target in zip(numbers, batch.inputs, batch.targets, strict=True):
        end = apply(policy, picture[None], rng=random.generator(seed, "search", "coins", number))
        start = random.uniform(tuple(end.shape), random.generator(seed, "search", "noise", number), like=end)
        path = similarities(model, start, end, target=target, variant=variant, bins=bins // every, loss=loss)
        scores.append(integrate(path, variant, bins=bins))
    return torch.stack(scores)


def similarities(
    model: nn.Module,
    start: Tensor,
    end: Tensor,
    *,
    target: Tensor,
    variant: Variant = "released",
    bins: int = BINS,
    loss: Loss = functional.cross_entropy,
) -> Tensor:
    """GradSim at bins + 1 points of the line from `start` to `end`, [1, c, h, w] each; the last is that of `end`."""
    share = torch.linspace(0, 1, bins + 1, dtype=end.dtype, device=end.device).reshape(-1, 1, 1, 1)
    line = Batch((1 - share) * start + share * end, target.expand(bins + 1))
    with evaluation_mode(model):
        dots, squares = gradient_products(model, line, loss=loss)
    # A tensor without a gradient at the end of the line (dead units) resembles nothing, and says nothing.
    alive = squares[-1] > 0
    if not bool(alive.any()):
        return torch.ones(bins + 1, dtype=torch.float64)
    dots, squares = dots[:, alive], squares[:, alive]
    if variant == "paper":
        return _cosines(dots.sum(1, keepdim=True), squares.sum(1, keepdim=True))[:, 0]
    return _cosines(dots, squares).mean(1)


def integrate(path: Tensor, variant: Variant, *, bins: int = BINS) -> Tensor:
    """The mean of a similarity along the line: trapezoids as released, the left sum of `bins` bins as in the papers.

    `path` may hold fewer points than there are bins. With s its values and K bins, the left sum is taken to be
    ∫s − (s(1) − s(0)) / 2K, which is exact where all points are there.
    """
    trapezoids = ((path[:-1] + path[1:]) / 2).mean()
    return trapezoids - (path[-1] - path[0]) / (2 * bins) if variant == "paper" else trapezoids


def check_variant(variant: str) -> None:
    """Insist on a known way to compute scores."""
    if variant not in VARIANTS:
        raise UsageError(f"scores are computed as 'released' or as in the 'paper', got {variant!r}")


def check_every(every: int, bins: int = BINS) -> None:
    """Insist on a share of the points that has noise and picture among them."""
    check_count(every, "every", most=bins)
    if bins % every:
        raise UsageError(f"points 0, {every}, … of {bins} bins would leave out the last; choose a divisor of {bins}")


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the length of the block; afterwards every module is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _cosines(dots: Tensor, squares: Tensor) -> Tensor:
    """Cosines with the last point, tensor by tensor; 0 where a gradient is zero."""
    lengths = (squares * squares[-1]).sqrt()
    return torch.where(lengths > 0, dots / lengths.clamp(min=torch.finfo(dots.dtype).tiny), 0.0).clamp(-1, 1)
