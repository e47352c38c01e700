"""3 × 3 convolutions as batched matrix products: Winograd's F(4×4, 3×3).

A tile of 4 × 4 outputs reads 6 × 6 inputs. With d the input tile and g the kernel,

    y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A,        36 products instead of 144.

Summed over channels, ⊙ is one matrix product for each of the 36 points, and everything else
the attack needs reuses the same transforms: the input gradient multiplies by the transposed
matrices, the weight gradient is the product of both transformed sides. As the transforms act
on rows and columns alike, each is one matrix product with a Kronecker square.

These convolutions hand images to each other in tiles: an image [N, C, H, W] becomes
[4, 4, N, H/4, W/4, C], position in the tile first, channel last. Each transform of a tile is then
one matrix product over the leading axes, a shift to the neighbouring tile copies whole rows of
channels, and activations do not care.

Reference: Lavin & Gray, "Fast algorithms for convolutional neural networks", CVPR 2016.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leakscope.fastgrad.layer import CompiledLayer, Layout, Memo, require
from leakscope.fastgrad.memory import Scratch
from leakscope.fastgrad.weighted import WeightedLayer
from leakscope.fastgrad.weights import FoldedWeights, Weights

SIDE = 4
# Of the sets with small fractions this one rounds best: 1.3e-6 in float32 against 1.9e-6 for ±2.
POINTS = (0.0, 1.0, -1.0, 2.0, -0.5)
REACH = SIDE + 2
COUNT = REACH * REACH
# Row of the point (1, 1): there AᵀMA adds M to all outputs alike, so the bias lives there.
ONE = REACH + 1


def pays_off(module: nn.Conv2d, *, shape: tuple[int, ...], examples: int) -> bool:
    """Whether the products saved outweigh the transforms of tiles and weights."""
    plain = (module.kernel_size, module.stride, module.padding, module.dilation, module.groups)
    if plain not in (((3, 3), (1, 1), (1, 1), (1, 1), 1), ((3, 3), (1, 1), "same", (1, 1), 1)):
        return False
    _, height, width = shape
    if height % SIDE or width % SIDE or min(module.in_channels, module.out_channels) < 32:
        return False
    return examples * height * width >= 16 * SIDE * SIDE


class Winograd(WeightedLayer):
    """A zero-padded 3 × 3 convolution of tiled values [4, 4, N, h, w, channels]."""

    layout: Layout = "tiles"

    def __init__(self, folded: FoldedWeights, *, grid: tuple[int, int], scratch: Scratch) -> None:
        weight = folded.weight.value
        self.rows, self.columns = weight.shape[:2]
        self.grid = grid
        self._scratch = scratch
        # A key of its own: with the layer itself as key, scratch and layer would keep each other alive.
        self._place = object()
        self.input, self.output, self.kernel = build_transforms(weight)
        super().__init__(folded)

    def prepare(self, weights: Weights, *, reuse: bool = False) -> Weights:
        """G g Gᵀ for every pair of channels: [36·groups, out, in]."""
        flat = require(weights.weight).reshape(-1, 9).t()
        out = self._scratch.take(self._place, COUNT, flat.shape[1], like=flat) if reuse else None
        points = torch.mm(self.kernel, flat, out=out)
        return Weights(points.view(-1, self.rows, self.columns), weights.bias, weights.shared)

    def enter(self, x: Tensor) -> Tensor:
        """Bᵀ d B: [4, 4, N, h, w, in] → [36, N·h·w, in]."""
        return (self.input @ gather_tiles(x).view(COUNT, -1)).view(COUNT, -1, self.columns)

    def enter_transposed(self, values: Tensor) -> Tensor:
        """The transpose of `enter`."""
        tiles = self.input.t() @ values.view(COUNT, -1)
        return scatter_tiles(tiles.view(REACH, REACH, -1, *self.grid, self.columns))

    def leave(self, values: Tensor) -> Tensor:
        """Aᵀ M A: [36, N·h·w, out] → [4, 4, N, h, w, out]."""
        return (self.output.t() @ values.view(COUNT, -1)).view(SIDE, SIDE, -1, *self.grid, self.rows)

    def leave_transposed(self, grad: Tensor) -> Tensor:
        """The transpose of `leave`."""
        return (self.output @ grad.reshape(SIDE * SIDE, -1)).view(COUNT, -1, self.rows)

    def apply(self, x: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """One product for each point, and for each group with weights of its own."""
        weight = require(weights.weight)
        y = torch.bmm(x.view(len(weight), -1, self.columns), weight.transpose(1, 2)).view(COUNT, -1, self.rows)
        if weights.bias is not None:
            sets = 1 if weights.shared else groups
            y[ONE].view(sets, -1, self.rows).add_(weights.bias.view(sets, 1, -1))
        return y

    def transpose(self, grad: Tensor, weights: Weights, *, groups: int) -> Tensor:
        """The same products with the transposed weights."""
        weight = require(weights.weight)
        return torch.bmm(grad.view(len(weight), -1, self.rows), weight).view(COUNT, -1, self.columns)

    def correlate(self, grad: Tensor, x: Tensor, *, groups: int) -> Tensor:
        """Gᵀ(M̄ Vᵀ)G, group by group: the 36 products are four times the size of a weight."""
        result = grad.new_empty(groups, self.rows, self.columns, 9)
        left, right = (side.view(COUNT, groups, -1, side.shape[-1]) for side in (grad, x))
        back = self.kernel.t().expand(self.rows, 9, COUNT)
        points = self._scratch.take("points", COUNT, self.rows, self.columns, like=grad)
        for group in range(groups):
            torch.bmm(left[:, group].transpose(1, 2), right[:, group], out=points)
            result[group] = torch.bmm(back, points.transpose(0, 1)).transpose(1, 2)
        return result.view(groups, self.rows, self.columns, 3, 3)

    def sum_bias(self, grad: Tensor, *, groups: int) -> Tensor:
        """At the point (1, 1), AȳAᵀ is the sum of the tile."""
        return grad[ONE].view(groups, -1, self.rows).sum(1)


def gather_tiles(x: Tensor) -> Tensor:
    """Tiles of 4 × 4 with the border of 1 they read from their neighbours: [6, 6, N, h, w, C]."""
    tiles = x.new_zeros(REACH, REACH, *x.shape[2:])
    tiles[1:-1, 1:-1] = x
    tiles[0, 1:-1, :, 1:] = x[-1, :, :, :-1]
    tiles[-1, 1:-1, :, :-1] = x[0, :, :, 1:]
    tiles[:, 0, :, :, 1:] = tiles[:, -2, :, :, :-1]
    tiles[:, -1, :, :, :-1] = tiles[:, 1, :, :, 1:]
    return tiles


def scatter_tiles(tiles: Tensor) -> Tensor:
    """The transpose of `gather_tiles`; overwrites its argument."""
    tiles[:, 1, :, :, 1:] += tiles[:, -1, :, :, :-1]
    tiles[:, -2, :, :, :-1] += tiles[:, 0, :, :, 1:]
    tiles[1, 1:-1, :, 1:] += tiles[-1, 1:-1, :, :-1]
    tiles[-2, 1:-1, :, :-1] += tiles[0, 1:-1, :, 1:]
    return tiles[1:-1, 1:-1]


def build_transforms(like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Kronecker squares of Bᵀ [36, 36], A [36, 16] and G [36, 9], in the dtype of `like`.

    Multiplying polynomials by their values at six points (the last one infinity) and
    transposing that algorithm gives A and G as Vandermonde matrices and Bᵀ as the inverse
    transpose of the square one.
    """
    square = _evaluate_powers(REACH)
    factors = (torch.linalg.inv(square).t().contiguous(), _evaluate_powers(SIDE), _evaluate_powers(3))
    first, second, third = (torch.kron(factor, factor).to(like) for factor in factors)
    return first, second, third


def _evaluate_powers(terms: int) -> Tensor:
    """Row i: the powers of point i, up to `terms`; for infinity, the leading coefficient."""
    powers = torch.tensor([[point**k for k in range(terms)] for point in POINTS], dtype=torch.float64)
    infinity = torch.zeros(1, terms, dtype=torch.float64)
    infinity[0, -1] = 1
    return torch.cat([powers, infinity])


def cut_tiles(x: Tensor) -> Tensor:
    """[N, C, H, W] → [4, 4, N, H/4, W/4, C]."""
    count, channels, height, width = x.shape
    grid = x.reshape(count, channels, height // SIDE, SIDE, width // SIDE, SIDE)
    return grid.permute(3, 5, 0, 2, 4, 1).contiguous()


def join_tiles(x: Tensor) -> Tensor:
    """[4, 4, N, H/4, W/4, C] → [N, C, H, W]."""
    _, _, count, rows, columns, channels = x.shape
    return x.permute(2, 5, 3, 0, 4, 1).reshape(count, channels, SIDE * rows, SIDE * columns)


class ToTiles(CompiledLayer):
    """Change of layout; its transpose is the change back."""

    layout: Layout = "plain"

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Cut into tiles."""
        return cut_tiles(inputs[0])

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Join the tiles."""
        return (join_tiles(grad),)


class FromTiles(CompiledLayer):
    """Change of layout; its transpose is the change back."""

    layout: Layout = "tiles"

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Join the tiles."""
        return join_tiles(inputs[0])

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Cut into tiles."""
        return (cut_tiles(grad),)
