"""The input of one convolution from its gradient and its output, by least squares.

For one example the gradient of filter o is G[o, c] = Σ_p k[o, p] x[c, window p]: the same linear
system K for every input channel c. The output adds z = W ∗ x, which ties the channels together.
Padding is known to be zero, so those unknowns are left out.

Directions of K with a large singular value are read off the gradient alone; only what they leave
open is a joint problem over all channels. That is exact algebra, and turns one system in c·h·w
unknowns into one of h·w and a smaller rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.attacks.closed.recursive.layer_chain import LayerBlock

# Directions weaker than this, relative to the strongest, amplify rounding a thousandfold: the output helps to decide.
STRONG = 1e-3
# Singular values of the rest below this share of the largest count as zero.
NEGLIGIBLE = 1e-6
# Dense systems beyond this many unknowns take minutes and gigabytes.
LARGEST = 6_000


@dataclass(frozen=True)
class Solved:
    """An input, how many of its unknowns the equations fix, and the misfit of the gradient equations."""

    inputs: Tensor
    rank: int
    residual: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Split:
    """K = U S Vᵀ of one channel, cut into strong directions and the rest."""

    strong: int
    left: Tensor
    values: Tensor
    right: Tensor

    @property
    def rest(self) -> Tensor:
        """Basis of what the strong directions leave open, [pixels, directions]."""
        return self.right[self.strong :].T


def windows(block: LayerBlock) -> Tensor:
    """Pixel under each filter entry at each output place, [entries, places]; −1 in the padding."""
    layer, (_channels, height, width) = _conv(block), block.in_shape
    # One-based, so that the zeros of the padding stand for "no pixel".
    numbered = torch.arange(1, height * width + 1, dtype=torch.float64, device=layer.weight.device)
    spread = functional.unfold(
        numbered.reshape(1, 1, height, width),
        layer.kernel_size,  # type: ignore[arg-type]
        dilation=layer.dilation,
        padding=layer.padding,  # type: ignore[arg-type]
        stride=layer.stride,
    )
    return spread[0].round().long() - 1


def gradient_system(gradient: Tensor, places: Tensor, pixels: int) -> Tensor:
    """K with rows (filter, filter entry) and one column per pixel of a channel."""
    filters, entries = len(gradient), len(places)
    dense = gradient.new_zeros(filters, entries, pixels + 1)
    index = torch.where(places < 0, pixels, places)
    dense.scatter_(2, index.expand(filters, -1, -1), gradient.reshape(filters, 1, -1).expand(-1, entries, -1))
    return dense[..., :pixels].reshape(filters * entries, pixels)


def solve(block: LayerBlock, *, gradient: Tensor, weight_gradient: Tensor, output: Tensor) -> Solved:
    """x of least norm among those that fit ∂L/∂W and W ∗ x + b = output best.

    Args:
        block: The convolution.
        gradient: k, the gradient in its output.
        weight_gradient: The observed ∂L/∂W.
        output: What it gave, before the activation.
    """
    channels, pixels = block.in_shape[0], block.in_shape[1] * block.in_shape[2]
    places = windows(block)
    system = gradient_system(gradient, places, pixels)
    observed = weight_gradient.permute(0, 2, 3, 1).reshape(len(system), channels)
    split = _split(system)
    read = split.left[:, : split.strong].T @ observed / split.values[: split.strong, None]
    known = split.right[: split.strong].T @ read
    rank, notes = channels * split.strong, ()
    if split.strong < pixels and channels * (pixels - split.strong) <= LARGEST:
        rest, more = _rest(block, split, places, known=known, observed=observed, output=output)
        known, rank = known + split.rest @ rest, rank + more
    elif split.strong < pixels:
        notes = (
            f"{block.name!r}: its output was left out, {channels * (pixels - split.strong)} unknowns are too many",
        )
    residual = float((system @ known - observed).norm() / observed.norm().clamp_min(1e-300))
    return Solved(known.T.reshape(block.in_shape), rank, residual, notes)


def numeric_rank(block: LayerBlock, gradient: Tensor) -> int:
    """How many of the unknowns gradient and output equations fix together, for this k."""
    channels, pixels = block.in_shape[0], block.in_shape[1] * block.in_shape[2]
    places = windows(block)
    split = _split(gradient_system(gradient, places, pixels))
    if split.strong == pixels:
        return channels * pixels
    if channels * (pixels - split.strong) > LARGEST:
        return channels * split.strong
    gram, _equations = _joint(block, split, places, scale=1.0)
    return channels * split.strong + _rank(gram)


def _split(system: Tensor) -> _Split:
    rows, pixels = system.shape
    if rows > pixels:
        # The triangle has the same singular values and is smaller; U is put together again.
        basis, system = torch.linalg.qr(system)
        left, values, right = torch.linalg.svd(system)
        left = basis @ left
    else:
        left, values, right = torch.linalg.svd(system, full_matrices=True)
    strong = int((values > STRONG * values[0]).sum()) if float(values[0]) > 0 else 0
    return _Split(strong, left, values, right)


def _rest(
    block: LayerBlock, split: _Split, places: Tensor, *, known: Tensor, observed: Tensor, output: Tensor
) -> tuple[Tensor, int]:
    """What the strong directions leave open, [directions, channels], and the rank of its system."""
    missing = output - block.forward(known.T)
    # Either kind of equation is measured in units of its right-hand side: relative errors count alike.
    scale = float(output.norm() / output.numel() ** 0.5 / (observed.norm() / observed.numel() ** 0.5).clamp_min(1e-300))
    gram, equations = _joint(block, split, places, scale=scale)
    weak = split.left[:, split.strong : len(split.values)].T @ observed * scale
    goal = torch.cat([missing.reshape(-1), weak.T.reshape(-1)])
    rank = _rank(gram)
    if rank == 0:
        return known.new_zeros(split.rest.shape[1], block.in_shape[0]), 0
    # Iterated Tikhonov from zero: tends to the solution of least norm, whatever the rank.
    ridge = NEGLIGIBLE**2 * gram.diagonal().mean()
    gram.diagonal().add_(ridge)
    factor = torch.linalg.cholesky(gram)
    found = goal.new_zeros(len(gram))
    for _ in range(5):
        pulled = equations.T @ (goal - equations @ found)
        found = found + torch.cholesky_solve(pulled[:, None], factor)[:, 0]
    return found.reshape(block.in_shape[0], -1).T, rank


def _joint(block: LayerBlock, split: _Split, places: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    """Gram matrix and rows of the joint system: the output's equations, then the weak ones of the gradient."""
    weight, basis = block.weight(), split.rest
    padded = torch.cat([basis, basis.new_zeros(1, basis.shape[1])])
    # [entries, places, directions]: index −1 is the row of zeros.
    seen = padded[places]
    rows = torch.einsum("oce,epd->opcd", weight.flatten(2), seen).reshape(-1, weight.shape[1] * basis.shape[1])
    weak = split.values[split.strong :] * scale
    one = weak.new_zeros(len(weak), basis.shape[1])
    one[:, : len(weak)] = torch.diag(weak)
    equations = torch.cat([rows, torch.block_diag(*[one] * weight.shape[1])]) if len(weak) else rows
    return equations.T @ equations, equations


def _rank(gram: Tensor) -> int:
    values = torch.linalg.eigvalsh(gram)
    return int((values > NEGLIGIBLE**2 * values[-1]).sum()) if float(values[-1]) > 0 else 0


def _conv(block: LayerBlock) -> nn.Conv2d:
    assert isinstance(block.layer, nn.Conv2d)
    return block.layer
