from __future__ import annotations

import pytest
import torch

from leakscope.errors import UnsuitableError, UsageError
from leakscope.matching.candidates import Patterned
from leakscope.matching.penalties import LabelTerm, Trial
from leakscope.rng import generator
from tiny import batch_of, convolutional, dense, seen_of


def seen(channels: int = 1, side: int = 6):
    one = seen_of(dense(), batch_of([1]))
    return type(one)(**{**vars(one), "input_shape": (channels, side, side)})


@pytest.mark.parametrize(("side", "tiles"), [(8, 4), (6, 4), (7, 2), (8, 1)])
def test_a_patch_is_repeated_over_the_image(side, tiles):
    start = Patterned("patch", tiles).start(seen(3, side), 2, generator(0))["inputs"]
    assert start.shape == (2, 3, side, side)
    step = -(-side // tiles)
    torch.testing.assert_close(start[..., step:, :], start[..., : side - step, :])
    torch.testing.assert_close(start[..., :, step:], start[..., :, : side - step])
    assert 0 <= float(start.min()) < float(start.max()) <= 1
    assert not torch.equal(start[0], start[1])


@pytest.mark.parametrize(("pattern", "value"), [("dark", 0.0), ("light", 1.0), ("grey", 0.5)])
def test_plain_starts(pattern, value):
    assert Patterned(pattern).start(seen(), 1, generator(0))["inputs"].unique().tolist() == [value]


def test_colours_need_colour():
    start = Patterned("green").start(seen(3), 1, generator(0))["inputs"]
    assert start.mean((0, 2, 3)).tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(UnsuitableError, match="three channels, got 1; use 'patch'"):
        Patterned("red").start(seen(1), 1, generator(0))


def test_misuse_is_named():
    with pytest.raises(UsageError, match="one of patch, dark"):
        Patterned("stripes")
    with pytest.raises(UsageError, match="tiles must be ≥ 1, got 0"):
        Patterned("patch", 0)


@pytest.mark.parametrize("soft", [False, True])
def test_the_label_term_is_zero_for_a_sure_prediction_and_has_the_right_slope(soft):
    model = convolutional(norm=True)
    model.train()
    x = batch_of([1, 2]).inputs[None].repeat(2, 1, 1, 1, 1).requires_grad_()
    targets = torch.tensor([[1, 2], [1, 2]])
    if soft:
        targets = torch.nn.functional.one_hot(targets, 4).double()
    term = LabelTerm(1.0)
    assert torch.autograd.gradcheck(lambda value: term.value(Trial(value, value, targets, model)), x)
    with torch.no_grad():
        model.get_submodule("4").bias[2] += 100  # type: ignore[index, operator]
    value = term.value(Trial(x[:, 1:], x[:, 1:], targets[:, 1:], model.eval()))
    assert value.tolist() == pytest.approx([0, 0], abs=1e-9)
