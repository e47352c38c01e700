from __future__ import annotations

import pytest
import torch

from leakscope.errors import BadInputError, UsageError
from leakscope.types import Batch, SharedUpdate, Status

PIXELS = torch.full((2, 1, 4, 4), 0.5)
LABELS = torch.tensor([0, 1])


def test_a_batch_counts_its_examples_and_keeps_integer_targets_when_cast():
    cast = Batch(PIXELS, LABELS).to(torch.float64)
    assert len(cast) == 2
    assert cast.inputs.dtype == torch.float64
    assert cast.targets.dtype == torch.int64


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_not_finite_inputs_are_refused_even_without_bounds(value):
    broken = PIXELS.clone()
    broken[0, 0, 1, 1] = value
    for bounds in ((0.0, 1.0), None):
        with pytest.raises(BadInputError, match="NaN or Inf; clean"):
            Batch(broken, LABELS, bounds)


def test_eight_bit_pixels_are_refused_with_the_range_that_came_and_the_remedy():
    with pytest.raises(BadInputError, match=r"must lie in \[0, 1\], got \[0, 255\]; divide 8-bit images by 255"):
        Batch(torch.tensor([[0.0, 255.0]]), torch.tensor([0]))
    assert len(Batch(torch.tensor([[0.0, 255.0]]), torch.tensor([0]), bounds=None)) == 1


def test_rounding_at_the_edge_of_the_range_is_no_error():
    assert float(Batch(torch.tensor([[1.00005, 0.0]]), torch.tensor([0])).inputs.max()) > 1


@pytest.mark.parametrize("shape", [(0, 3), (5,), ()])
def test_inputs_need_examples(shape):
    with pytest.raises(BadInputError, match=r"needs shape \[n, …\] with n ≥ 1, got"):
        Batch(torch.zeros(shape), torch.zeros(5, dtype=torch.long))


@pytest.mark.parametrize("targets", [torch.tensor([0]), torch.tensor(0), torch.tensor([0, 1, 2])])
def test_every_input_needs_one_target(targets):
    with pytest.raises(BadInputError, match="one target per input, got 2 inputs"):
        Batch(PIXELS, targets)


@pytest.mark.parametrize(
    ("fields", "error", "match"),
    [
        ({"kind": "weights", "tensors": {"a": LABELS}}, UsageError, "'gradient' or 'delta', got 'weights'"),
        ({"kind": "delta", "tensors": {}}, BadInputError, "empty; expected one tensor"),
        ({"kind": "delta", "tensors": {"a": LABELS}, "num_examples": 0}, UsageError, "whole number ≥ 1, got 0"),
    ],
)
def test_updates_that_say_nothing_are_refused(fields, error, match):
    with pytest.raises(error, match=match):
        SharedUpdate(**fields)


def test_a_status_prints_as_its_word():
    assert f"{Status.DIVERGED}" == "diverged"
    assert Status("nan") is Status.NAN
