"""The Winograd form against torch's convolution, in double precision."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leakscope.fastgrad.layer import Memo
from leakscope.fastgrad.memory import Scratch
from leakscope.fastgrad.weights import FoldedWeights, LayerParameter, Weights
from leakscope.fastgrad.winograd import Winograd, cut_tiles, gather_tiles, join_tiles, pays_off, scatter_tiles
from leakscope.rng import generator, normal

DOUBLE = torch.zeros((), dtype=torch.float64)


def draw(*shape: int, name: str) -> torch.Tensor:
    return normal(shape, generator(3, name), like=DOUBLE)


def layer(rows: int, columns: int, grid: tuple[int, int]) -> tuple[Winograd, torch.Tensor, torch.Tensor]:
    weight, bias = draw(rows, columns, 3, 3, name="w"), draw(rows, name="b")
    folded = FoldedWeights(LayerParameter(weight, "w"), LayerParameter(bias, "b"))
    return Winograd(folded, grid=grid, scratch=Scratch()), weight, bias


@pytest.mark.parametrize(("height", "width"), [(4, 4), (8, 12), (16, 8)])
def test_forward_and_both_gradients_equal_torch(height, width):
    op, weight, bias = layer(5, 3, (height // 4, width // 4))
    x, grad = draw(2, 3, height, width, name="x"), draw(2, 5, height, width, name="g")
    for leaf in (weight, bias, x):
        leaf.requires_grad_()
    y = nn.functional.conv2d(x, weight, bias, padding=1)
    expected = torch.autograd.grad(y, (x, weight, bias), grad)
    memo = Memo(1, weights=op.prepared)
    with torch.no_grad():
        found = join_tiles(op.forward(memo, cut_tiles(x)))
        to_input = join_tiles(op.backward(memo, cut_tiles(grad))[0])
    torch.testing.assert_close(found, y.detach(), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(to_input, expected[0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(memo.gradient.weight[0], expected[1], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(memo.gradient.bias[0], expected[2], rtol=1e-11, atol=1e-11)


def test_groups_with_weights_of_their_own():
    op, _, _ = layer(5, 3, (2, 2))
    weights, biases = draw(3, 5, 3, 3, 3, name="groups"), draw(3, 5, name="biases")
    x = draw(6, 3, 8, 8, name="x")
    moved = op.prepare(Weights(weights, biases, shared=False))
    found = join_tiles(op.forward(Memo(3, first=False, weights=moved), cut_tiles(x)))
    parts = [nn.functional.conv2d(x[2 * g : 2 * g + 2], weights[g], biases[g], padding=1) for g in range(3)]
    torch.testing.assert_close(found, torch.cat(parts), rtol=1e-11, atol=1e-11)


def test_gather_and_scatter_are_transposes():
    x, y = draw(4, 4, 2, 3, 2, 5, name="x"), draw(6, 6, 2, 3, 2, 5, name="y")
    left = (gather_tiles(x) * y).sum()
    right = (x * scatter_tiles(y.clone())).sum()
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


def test_tiles_round_trip():
    x = draw(2, 3, 8, 12, name="x")
    assert torch.equal(join_tiles(cut_tiles(x)), x)


@pytest.mark.parametrize(
    "options", [{"stride": 2}, {"padding": 0}, {"dilation": 2}, {"groups": 2}, {"kernel_size": 5, "padding": 2}]
)
def test_other_convolutions_are_left_to_torch(options):
    module = nn.Conv2d(64, 64, **({"kernel_size": 3, "padding": 1} | options))
    assert not pays_off(module, shape=(64, 32, 32), examples=1)


def test_few_tiles_or_channels_do_not_pay():
    module = nn.Conv2d(64, 64, 3, padding=1)
    assert pays_off(module, shape=(64, 32, 32), examples=1)
    assert not pays_off(module, shape=(64, 8, 8), examples=1)
    assert pays_off(module, shape=(64, 8, 8), examples=8)
    assert not pays_off(module, shape=(64, 30, 30), examples=8)
    assert not pays_off(nn.Conv2d(3, 64, 3, padding=1), shape=(3, 32, 32), examples=8)
