"""The layout in which Winograd convolutions hand images to each other.

An image [N, C, H, W] is cut into tiles of 4 × 4; a tiled value is [4, 4, N, H/4, W/4, C]: position
in the tile first, channel last. Each transform of a tile is then one matrix product over the
leading axes, a shift to the neighbouring tile copies whole rows of channels, and activations
do not care.
"""

from __future__ import annotations

from torch import Tensor

from leakscope.fastgrad.op import Layout, Memo, Op

SIDE = 4


def to_tiles(x: Tensor) -> Tensor:
    """[N, C, H, W] → [4, 4, N, H/4, W/4, C]."""
    count, channels, height, width = x.shape
    grid = x.reshape(count, channels, height // SIDE, SIDE, width // SIDE, SIDE)
    return grid.permute(3, 5, 0, 2, 4, 1).contiguous()


def from_tiles(x: Tensor) -> Tensor:
    """[4, 4, N, H/4, W/4, C] → [N, C, H, W]."""
    _, _, count, rows, columns, channels = x.shape
    return x.permute(2, 5, 3, 0, 4, 1).reshape(count, channels, SIDE * rows, SIDE * columns)


class ToTiles(Op):
    """Change of layout; its transpose is the change back."""

    layout: Layout = "plain"

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Cut into tiles."""
        return to_tiles(inputs[0])

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Join the tiles."""
        return (from_tiles(grad),)


class FromTiles(Op):
    """Change of layout; its transpose is the change back."""

    layout: Layout = "tiles"

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Join the tiles."""
        return from_tiles(inputs[0])

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Cut into tiles."""
        return (to_tiles(grad),)
