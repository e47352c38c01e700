"""Tables: a range for each column, one-hot columns, and what is measured of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from leakscope.audits.audit import audit
from leakscope.data import load, parse_bounds
from leakscope.errors import BadInputError, UsageError
from leakscope.metrics import columns_recovered, score
from leakscope.registry import get_attack
from leakscope.tasks import Columns
from leakscope.types import Batch, Reconstruction, Status

PERSON = Columns(low=(18, 0, 0, 0, -5), high=(90, 1, 1, 1, 5), one_hot=((1, 2, 3),))
ROWS = torch.tensor([[30.0, 1, 0, 0, 2.5], [71.0, 0, 0, 1, -4]])


def _model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.BatchNorm1d(5, affine=False), nn.Linear(5, 16), nn.Sigmoid(), nn.Linear(16, 3)).eval()


def _rows() -> Batch:
    return Batch(ROWS, torch.tensor([0, 2]), PERSON)


def test_rows_are_brought_inside_their_ranges_and_groups_sum_to_one():
    wild = torch.tensor([[200.0, 2.0, 1.0, -3.0, 0.5], [0.0, 0.2, 0.2, 0.2, -9.0]])
    kept = PERSON.project(wild)
    assert kept[:, 0].tolist() == [90.0, 18.0]
    assert kept[:, 4].tolist() == [0.5, -5.0]
    torch.testing.assert_close(kept[:, 1:4].sum(1), torch.ones(2))
    torch.testing.assert_close(kept[:, 1:4], torch.tensor([[1.0, 0, 0], [1 / 3, 1 / 3, 1 / 3]]))
    assert bool((kept[:, 1:4] >= 0).all())


def test_the_projection_is_the_nearest_point():
    """Against brute force over a fine grid of the simplex."""
    point = torch.tensor([[50.0, 0.9, 0.4, -0.2, 0.0]])
    found = PERSON.project(point)[0, 1:4]
    steps = torch.linspace(0, 1, 101)
    grid = torch.cartesian_prod(steps, steps)
    grid = torch.cat([grid, 1 - grid.sum(1, keepdim=True)], 1)
    grid = grid[grid[:, 2] >= -1e-6]
    best = grid[(grid - point[0, 1:4]).square().sum(1).argmin()]
    torch.testing.assert_close(found, best, atol=0.011, rtol=0)


def test_decoded_rows_are_rows_of_a_table():
    decoded = PERSON.decode(torch.tensor([[30.0, 0.4, 0.35, 0.25, 9.0]]))
    assert decoded.tolist() == [[30.0, 1.0, 0.0, 0.0, 5.0]]
    PERSON.check(decoded)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([[17.0, 1, 0, 0, 0]], r"column 0 must lie in \[18, 90\]"),
        ([[20.0, 1, 1, 0, 0]], "one-hot"),
        ([[20.0, 0, 0, 0, 0]], "one-hot"),
        ([[20.0, 1, 0, 0]], "5 columns"),
    ],
)
def test_a_batch_outside_its_columns_is_refused(rows, reason):
    with pytest.raises(BadInputError, match=reason):
        Batch(torch.tensor(rows), torch.tensor([0]), PERSON)


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": (0, 1), "high": (1,)},
        {"low": (1,), "high": (1,)},
        {"low": (0, 0), "high": (1, 2), "one_hot": ((0, 1),)},
        {"low": (0, 0), "high": (1, 1), "one_hot": ((0, 5),)},
        {"low": (0, 0), "high": (1, 1), "one_hot": ((0,),)},
        {"low": (float("nan"),), "high": (1,)},
    ],
)
def test_columns_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError):
        Columns(**wrong)


def test_bounds_may_be_pairs_of_tensors_or_sequences():
    low, high = torch.tensor([18.0, 0, 0, 0, -5]), [90, 1, 1, 1, 5]
    assert Batch(ROWS, torch.tensor([0, 2]), (low, high)).bounds == Columns(tuple(low.tolist()), tuple(high))  # type: ignore[arg-type]
    assert Batch(ROWS, torch.tensor([0, 2]), (-5, 90)).bounds == (-5.0, 90.0)


@pytest.mark.parametrize("name", ["inverting-gradients", "adam-l2", "dlg-adam", "geng"])
def test_candidates_stay_inside_every_column(name):
    attack = get_attack(name, steps=5)
    result = audit(_model(), _rows(), attack, scenario="A")
    assert result.reconstruction is not None
    low, high = PERSON.limits(result.reconstruction)
    if name in ("inverting-gradients", "adam-l2"):
        found = result.reconstruction
        assert bool((found >= low - 1e-4).all() and (found <= high + 1e-4).all())
        torch.testing.assert_close(found[:, 1:4].sum(1), torch.ones(2))
    assert result.scores is not None
    assert set(result.scores.names()) == {"psnr", "mse", "mae", "columns_recovered"}
    assert bool(result.scores["columns_recovered"].isfinite().all())


def test_a_row_comes_back_exactly_and_a_wrong_column_counts_once():
    exact = Reconstruction(ROWS.flip(0), torch.tensor([2, 0]), 0.0, Status.OK)
    assert score(exact, _rows())["columns_recovered"].tolist() == [1.0, 1.0]
    near = ROWS.clone()
    near[0, 0] += 3.5  # of a range of 72: within 5 %
    near[1, 4] += 0.6  # of a range of 10: not
    near[1, 1:4] = torch.tensor([0.3, 0.3, 0.4])  # decoded to the right one
    scores = score(Reconstruction(near, torch.tensor([0, 2]), 0.0, Status.OK), _rows())
    assert scores["columns_recovered"].tolist() == pytest.approx([1.0, 0.8])
    # The error is a share of each column's own range.
    assert scores["mae"].tolist() == pytest.approx([3.5 / 72 / 5, 0.6 / 10 / 5], rel=1e-3)
    assert "ssim" not in scores.names()


def test_the_tolerance_is_five_percent_of_the_range():
    truth = torch.full((1, 2), 0.5)
    assert columns_recovered(torch.tensor([[0.549, 0.551]]), truth).tolist() == [0.5]


def test_pictures_keep_their_usual_metrics():
    pictures = Batch(torch.rand(1, 1, 8, 8), torch.tensor([0]))
    assert score(Reconstruction(pictures.inputs, None, 0.0, Status.OK), pictures).names() == ("psnr", "ssim", "mse")


def test_bounds_are_read_from_the_file_or_the_option(tmp_path):
    path = tmp_path / "people.npz"
    group = np.array([-1, 0, 0, 0, -1])
    arrays = {"inputs": ROWS.numpy(), "targets": np.array([0, 2]), "low": np.array(PERSON.low)}
    np.savez(path, **arrays, high=np.array(PERSON.high), one_hot=group)
    assert load(str(path), split="test").bounds == PERSON
    # An option for the ranges does not unsay which columns are one-hot.
    assert load(str(path), split="test", bounds="18,90;0,1;0,1;0,1;-5,5").bounds == PERSON
    wide = Columns((-10, 0, 0, 0, -10), (100, 1, 1, 1, 100), ((1, 2, 3),))
    assert load(str(path), split="test", bounds="-10,100").bounds == wide
    np.savez(path, inputs=ROWS.numpy(), targets=np.array([0, 2]), one_hot=group)
    assert load(str(path), split="test", bounds="-10,100").bounds == wide
    with pytest.raises(UsageError, match="--bounds none lifts every range"):
        load(str(path), split="test", bounds="none")
    np.savez(path, inputs=ROWS.numpy(), targets=np.array([0, 2]))
    assert load(str(path), split="test", bounds="18,90;0,1;0,1;0,1;-5,5").bounds == Columns(PERSON.low, PERSON.high)
    np.savez(path, **arrays, high=np.array([90.0, 1.0]))
    with pytest.raises(BadInputError, match="one number a column"):
        load(str(path), split="test")


def test_an_option_by_column_is_checked():
    assert parse_bounds("0,1;-2,3") == Columns((0, -2), (1, 3))
    with pytest.raises(UsageError, match="18,90;0,1"):
        parse_bounds("0,1;x")
