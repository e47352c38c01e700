from __future__ import annotations

import pytest
import torch


def test_psnr_clamps_and_pairs_before_it_averages(load):
    truth = torch.stack([torch.zeros(3, 4, 4), torch.ones(3, 4, 4)])
    made = torch.stack([torch.full((3, 4, 4), 1.5), torch.full((3, 4, 4), 0.1)])  # swapped, one too bright
    expected = (120.0 + 20.0) / 2  # exact after clamping: the floor of the error is 1e-12
    assert load("measure").psnr(made, truth) == pytest.approx(expected, abs=1e-4)


def test_psnr_of_a_broken_image_is_not_a_number(load):
    made = torch.full((1, 3, 4, 4), float("nan"))
    assert load("measure").psnr(made, torch.zeros(1, 3, 4, 4)) != load("measure").psnr(made, torch.zeros(1, 3, 4, 4))


def test_recorder_keeps_copies_at_its_rhythm(load):
    recorder = load("measure").Recorder(every=3)
    iterate = torch.zeros(1, 3, 2, 2)
    for step in range(1, 8):
        recorder.snapshot(20 * step, iterate)
        iterate += 0.1
    points = recorder.trajectory(torch.zeros(1, 3, 2, 2), lambda image: image)
    assert [point["evaluations"] for point in points] == [20, 60, 120]
    assert [point["psnr"] for point in points] == pytest.approx([120.0, 13.979, 6.021], abs=1e-3)
    assert points[0]["wall"] <= points[-1]["wall"]
