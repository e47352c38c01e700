"""Scores by name: any metric fits in, and what was trained on is a second truth."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakscope.errors import BadInputError, UsageError
from leakscope.metrics import METRICS, MSE, PSNR, Metric, get_metric, psnr, score, score_trained
from leakscope.types import Batch, Reconstruction, Scores, Status


def batch(count: int = 3, shape: tuple[int, ...] = (1, 6, 6), seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    return Batch(torch.rand(count, *shape, generator=rng), torch.arange(count))


def found(inputs: torch.Tensor, targets: torch.Tensor | None = None) -> Reconstruction:
    return Reconstruction(inputs, targets, loss=0.0, status=Status.OK)


LARGEST = Metric(
    "largest-gap",
    lambda guess, truth: (guess - truth).abs().flatten(1).amax(1),
    higher_is_better=False,
    unit="",
    reference="this file",
    nothing=1.0,
)


def test_a_metric_of_ones_own_is_measured_beside_the_others():
    truth = batch()
    guess = truth.inputs.clone()
    guess[1, 0, 2, 3] = truth.inputs[1, 0, 2, 3] + (0.25 if truth.inputs[1, 0, 2, 3] < 0.5 else -0.25)
    scores = score(found(guess[:2].flip(0)), truth, metrics=("psnr", LARGEST))
    assert scores.names() == ("psnr", "largest-gap")
    torch.testing.assert_close(scores["largest-gap"], torch.tensor([0.0, 0.25, 1.0]))
    assert len(scores) == 3


def test_a_metric_is_chosen_by_name_and_an_unknown_one_lists_the_others():
    scores = score(found(batch().inputs), batch(), metrics=("mae",))
    assert scores.names() == ("mae",)
    assert scores["mae"].tolist() == [0, 0, 0]
    with pytest.raises(UsageError, match=r"unknown metric 'pnsr'.*psnr"):
        score(found(batch().inputs), batch(), metrics=("pnsr",))
    with pytest.raises(UsageError, match="'psnr' was not measured"):
        _ = scores.psnr
    assert get_metric("psnr") is PSNR
    assert get_metric(LARGEST) is LARGEST
    assert len({metric.name for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", [one for one in METRICS if one.name != "lpips"], ids=lambda one: one.name)
def test_nothing_is_no_better_than_an_unrelated_picture_and_finite(metric):
    """An example of which nothing came back must not look like a reconstruction."""
    white, black = torch.ones(1, 1, 16, 16), torch.zeros(1, 1, 16, 16)
    worst, sign = float(metric(white, black)), 1 if metric.higher_is_better else -1
    assert sign * metric.nothing <= sign * worst + 1e-3
    scores = score(found(torch.full((1, 1, 16, 16), torch.nan)), Batch(black, torch.tensor([0])), metrics=(metric,))
    assert scores[metric.name].tolist() == [metric.nothing]


def test_metrics_of_images_are_not_a_number_for_rows_of_numbers():
    rows = batch(shape=(5,))
    scores = score(found(rows.inputs), rows, metrics=("ssim", "mse"))
    assert scores.ssim.isnan().all()
    assert scores.mse.tolist() == [0, 0, 0]


def test_victims_are_joined_in_the_metrics_all_of_them_have():
    one = score(found(batch(2).inputs), batch(2), metrics=("psnr", "mse"))
    two = score(found(batch(3, seed=1).inputs[:2]), batch(3, seed=1), metrics=("psnr", "mae"))
    joined = Scores.join([one, two])
    assert len(joined) == 5
    assert joined.names() == ("psnr",)
    assert joined.psnr.tolist() == [*one.psnr.tolist(), *two.psnr.tolist()]
    assert joined.assignment.tolist() == [0, 1, 0, 1, -1]
    assert joined.lpips is None


def test_what_was_trained_on_counts_by_the_nearest_pass_of_each_example():
    truth = batch(3, (1, 8, 8))
    passes = [replace(truth, inputs=truth.inputs.flip(-1)), replace(truth, inputs=truth.inputs.flip(-2))]
    # Example 0 comes back as in the first pass, 2 as in the second, 1 not at all; and in another order.
    guess = torch.stack([passes[1].inputs[2], passes[0].inputs[0]])
    scores = score_trained(found(guess, torch.tensor([2, 0])), truth, passes)
    assert scores.psnr.tolist() == [150, 0, 150]
    assert scores.assignment.tolist() == [1, -1, 0]
    assert scores.label_correct.tolist() == [True, False, True]
    against_original = score(found(guess, torch.tensor([2, 0])), truth)
    assert float(against_original.psnr.max()) < 20


def test_the_nearest_pass_is_nearest_and_not_merely_one_of_them():
    truth = batch(2, (1, 8, 8))
    near, far = truth.inputs * 0.9, truth.inputs * 0.2
    scores = score_trained(found(truth.inputs), truth, [replace(truth, inputs=far), replace(truth, inputs=near)])
    torch.testing.assert_close(scores.psnr, psnr(truth.inputs, near))


def test_passes_pair_one_reconstruction_with_one_example_only():
    truth = batch(2, (1, 8, 8))
    # Both examples looked alike in one pass each: a single reconstruction cannot count for both.
    first = replace(truth, inputs=torch.stack([truth.inputs[0], truth.inputs[0]]))
    scores = score_trained(found(truth.inputs[:1]), truth, [first, truth])
    assert sorted(scores.assignment.tolist()) == [-1, 0]
    assert sorted(scores.psnr.tolist()) == [0, 150]


def test_a_transform_may_leave_the_range():
    truth = batch(2)
    bright = Batch(truth.inputs + 0.5, truth.targets, bounds=None)
    scores = score_trained(found((truth.inputs + 0.5).clamp(0, 1)), truth, [bright], metrics=(MSE,))
    assert scores.mse.tolist() == [0, 0]


def test_passes_must_be_those_of_the_truth():
    truth = batch(3)
    for wrong in ([], [batch(2)], [truth, batch(3, (1, 5, 5))]):
        with pytest.raises(BadInputError, match="score_trained needs batches of the examples' shape"):
            score_trained(found(truth.inputs), truth, wrong)


def test_pairs_are_made_by_all_passes_together():
    truth = batch(2, (1, 8, 8))
    # In the first pass each example looked much like the other one; the second shows them as they came back.
    crossed = replace(truth, inputs=truth.inputs.flip(0) * 0.9)
    scores = score_trained(found(truth.inputs), truth, [crossed, truth])
    assert scores.assignment.tolist() == [0, 1]
    assert scores.psnr.tolist() == [150, 150]
