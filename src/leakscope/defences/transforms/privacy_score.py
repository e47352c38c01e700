"""S_pri: how alike the gradients are on the way from noise to the transformed picture. Lower is more private."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope import rng as random
from leakscope.client.gradient import example_gradients
from leakscope.counts import check_count
from leakscope.defences.transforms.policy import apply, check_pictures
from leakscope.errors import UsageError
from leakscope.operations.policy import Policy
from leakscope.steps.gradient import compute_gradient, leaves, on_scores
from leakscope.types import Batch, Loss

Variant = Literal["released", "paper"]
VARIANTS: tuple[Variant, ...] = ("released", "paper")
BINS = 20
_MOST_BINS = 10_000
# From here on gradients one after the other are faster than all at once: 21 points of ResNet20-4 (4.3 million) took
# 1.28 s against 1.60 s, those of ResNet-20 (0.27 million) 0.20 s against 0.13 s, on one thread.
_LARGE_NETWORK = 1_000_000


def privacy_scores(
    policy: str | Policy,
    batch: Batch,
    *,
    model: nn.Module,
    variant: Variant = "released",
    seed: int = 0,
    places: Sequence[int] | None = None,
    bins: int = BINS,
    loss: Loss = functional.cross_entropy,
) -> Tensor:
    """S_pri of every picture, [n] in float64; the policy's score is their mean.

    A straight line leads from uniform noise to T(x), in pixels; the model normalises if it does. With g(t) the
    gradient at a share t of the way and K bins,

        released:  mean over tensors of cos(g(t), g(1)), integrated by the trapezoid rule
        paper:     cos(g(t), g(1)) of the whole gradient, summed over t = 0, 1/K, …, (K−1)/K and divided by K

    Noise and coins depend on `seed` and on a picture's place alone, so every policy meets the same ones.

    Args:
        policy: what transforms the pictures.
        batch: pictures in [0, 1] with their labels, which the attacker knows.
        model: evaluated in evaluation mode, whatever mode it is in; it stays as it is.
        variant: "released" as the published code computes it, "paper" as the papers write it.
        seed: of noise and coins.
        places: numbers of the pictures; 0, 1, … unless given. A picture keeps its draw when it comes in other company.
        bins: intervals between noise and picture.
        loss: any positive multiple of it gives the same score.

    References:
        Gao et al., CVPR 2021, section 4.2; the released code averages cosines over tensors instead.
    """
    check_variant(variant)
    check_count(bins, "bins", most=_MOST_BINS)
    check_pictures(batch.inputs)
    numbers = range(len(batch.inputs)) if places is None else places
    scores = []
    for number, picture, target in zip(numbers, batch.inputs, batch.targets, strict=True):
        end = apply(policy, picture[None], rng=random.generator(seed, "search", "coins", number))
        start = random.uniform(tuple(end.shape), random.generator(seed, "search", "noise", number), like=end)
        path = similarities(model, start, end, target=target, variant=variant, bins=bins, loss=loss)
        scores.append(integrate(path, variant))
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
        dots, squares = _products(model, line, loss)
    # A tensor without a gradient at the end of the line (dead units) resembles nothing, and says nothing.
    alive = squares[-1] > 0
    if not bool(alive.any()):
        return torch.ones(bins + 1, dtype=torch.float64)
    dots, squares = dots[:, alive], squares[:, alive]
    if variant == "paper":
        return _cosines(dots.sum(1, keepdim=True), squares.sum(1, keepdim=True))[:, 0]
    return _cosines(dots, squares).mean(1)


def integrate(path: Tensor, variant: Variant) -> Tensor:
    """The mean of a similarity along the line: trapezoids as released, the left sum as in the papers."""
    if variant == "paper":
        return path[:-1].mean()
    return ((path[:-1] + path[1:]) / 2).mean()


def check_variant(variant: str) -> None:
    """Insist on a known way to compute scores."""
    if variant not in VARIANTS:
        raise UsageError(f"scores are computed as 'released' or as in the 'paper', got {variant!r}")


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


def _products(model: nn.Module, line: Batch, loss: Loss) -> tuple[Tensor, Tensor]:
    """⟨g(t), g(1)⟩ and ‖g(t)‖², [points, tensors] each."""
    of_output, weights = on_scores(loss), leaves(model)
    if sum(value.numel() for value in weights.values()) < _LARGE_NETWORK:
        gradients = example_gradients(model, weights, line, loss=of_output)
        rows = [value.flatten(1).double() for value in gradients.values()]
        dots, squares = zip(*((row @ row[-1], row.square().sum(1)) for row in rows), strict=True)
        return torch.stack(dots, 1), torch.stack(squares, 1)

    def at(point: int) -> list[Tensor]:
        one, target = line.inputs[point, None], line.targets[point, None]
        found = compute_gradient(model, weights, one, target, loss=of_output, create_graph=False)
        # Squares of small numbers need the range.
        return [value.flatten().double() for value in found.values()]

    # One at a time, and only the products kept: the gradients of 21 points would fill memory.
    last = at(len(line.inputs) - 1)
    dots, squares = [], []
    for point in range(len(line.inputs)):
        here = at(point) if point < len(line.inputs) - 1 else last
        dots.append(torch.stack([one @ other for one, other in zip(here, last, strict=True)]))
        squares.append(torch.stack([one @ one for one in here]))
    return torch.stack(dots), torch.stack(squares)


def _cosines(dots: Tensor, squares: Tensor) -> Tensor:
    """Cosines with the last point, tensor by tensor; 0 where a gradient is zero."""
    lengths = (squares * squares[-1]).sqrt()
    return torch.where(lengths > 0, dots / lengths.clamp(min=torch.finfo(dots.dtype).tiny), 0.0).clamp(-1, 1)
