from __future__ import annotations

import pytest
import torch

import leakscope as ls


def test_growth_is_the_median_of_ratios_within_a_round(load):
    # The machine was twice as slow in the second round: that must not show.
    times = {1: [1.0, 2.0, 1.0], 2: [1.1, 2.2, 1.5], 8: [0.9, 1.8, 0.9]}
    assert load("agic_local_steps").growth(times) == pytest.approx({1: 1.0, 2: 1.1, 8: 0.9})


def test_every_update_uses_the_same_images_once(load):
    script = load("agic_local_steps")
    model = ls.models.build("lenet-dlg", num_classes=10, seed=0)
    images = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    seen = script.victims(model, ls.Batch(images, torch.arange(8)), scenario="B")
    assert [(one.local.steps, one.local.batch_size) for one in seen.values()] == [(1, 8), (2, 4), (4, 2), (8, 1)]
    assert {one.num_examples for one in seen.values()} == {8}
    assert {one.update.kind for one in seen.values()} == {"delta"}


def test_time_per_step_leaves_the_set_up_out(load, monkeypatch):
    script = load("agic_local_steps")
    clock = iter([100.0, 101.0, 103.0, 104.0])
    monkeypatch.setattr(script.time, "process_time", lambda: next(clock))

    class Watched:
        def reconstruct(self, seen, *, watch):
            for step in range(4):
                watch(step, torch.zeros(1), torch.zeros(1))

    assert script.seconds_per_step(Watched(), None) == pytest.approx(1.0)


def test_images_that_cannot_be_shared_out_are_refused(load, capsys):
    with pytest.raises(SystemExit):
        load("agic_local_steps").parse(["--images", "6"])
    assert "multiple of 8, got 6" in capsys.readouterr().err
