from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakscope.attacks.closed.pooling import read_pooled
from leakscope.attacks.closed.pooling.belief import infer
from leakscope.errors import UnsuitableError
from leakscope.metrics import guess_baseline
from leakscope.types import LocalTraining
from tiny import batch_of, seen_of


def _quality(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float(-10 * (found - truth).square().mean().log10())


@pytest.mark.parametrize(("size", "blocks", "least"), [(12, 1, 36.0), (14, 2, 33.0)])
def test_the_picture_comes_back_through_one_and_two_poolings(network, private, size, blocks, least):
    batch = private(size)
    found = read_pooled(seen_of(network(size, blocks=blocks), batch, scenario="C"), seed=0)
    assert found.shape == batch.inputs.shape
    assert found.dtype == torch.float32
    assert _quality(found, batch.inputs) > least > float(guess_baseline(batch))


def test_heeding_the_gradient_later_leads_out_of_a_wrong_solution(network, private):
    batch = private(8)
    seen = seen_of(network(8, seed=0), batch, scenario="C")
    early, late = (_quality(read_pooled(seen, gradient_from=share), batch.inputs) for share in (0.2, 0.5))
    assert early < 15 < 35 < late


def test_a_hidden_block_that_is_not_read_exactly_is_tried_once_more_and_warily(network, private, monkeypatch):
    tried = []

    def noted(block, known, *, prior, passes):
        tried.append((block.name, passes.wary))
        return infer(block, known, prior=prior, passes=replace(passes, count=2))

    monkeypatch.setattr("leakscope.attacks.closed.pooling.reading.infer", noted)
    monkeypatch.setattr("leakscope.attacks.closed.pooling.reading.exact", lambda *args, **options: None)
    read_pooled(seen_of(network(14, blocks=2), private(14), scenario="C"))
    assert tried == [("3", False), ("3", True), ("0", False)]


def test_a_feature_read_beyond_the_range_of_the_activation_says_nothing_about_the_pixels(network, private, monkeypatch):
    told = []

    def beyond(block, known, *, prior, belief):
        mean = torch.full_like(belief.mean, 0.5)
        mean[0] = 1.0005
        return replace(belief, mean=mean, covariance=1e-6 * torch.eye(len(mean)).to(mean))

    def noted(block, known, *, prior, passes):
        told.append(known.doubt.flatten())
        return infer(block, known, prior=prior, passes=replace(passes, count=2))

    monkeypatch.setattr("leakscope.attacks.closed.pooling.reading.infer", noted)
    monkeypatch.setattr("leakscope.attacks.closed.pooling.reading.exact", beyond)
    read_pooled(seen_of(network(14, blocks=2), private(14), scenario="C"))
    assert not told[0].any()
    assert float(told[1][0]) > 1e5
    # Divided by the sigmoid's slope of 1/4.
    assert torch.allclose(told[1][1:], torch.full_like(told[1][1:], 4e-3))


def test_a_normalisation_before_the_first_layer_changes_nothing(normalised, private):
    batch = private(12)
    found = read_pooled(seen_of(normalised(12), batch, scenario="C"), seed=0)
    assert _quality(found, batch.inputs) > 30


def test_the_same_seed_gives_the_same_bytes_and_nothing_of_the_caller_changes(network, private):
    model, batch = network(14, blocks=2).double(), private(14).to(torch.float64)
    seen = seen_of(model, batch, scenario="C")
    before = [value.clone() for value in (*model.parameters(), *seen.update.tensors.values())]
    state = torch.get_rng_state()
    first, second = (read_pooled(seen, seed=3, passes=4) for _ in range(2))
    assert first.dtype == torch.float64
    assert torch.equal(first, second)
    assert torch.equal(state, torch.get_rng_state())
    after = [*model.parameters(), *seen.update.tensors.values()]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_a_delta_of_one_step_is_read_as_the_gradient_it_is(network, private):
    batch = private(12)
    seen = seen_of(network(12), batch, scenario="A", local=LocalTraining(lr=0.01))
    assert _quality(read_pooled(seen, seed=0), batch.inputs) > 30


def test_several_examples_are_refused(network):
    seen = seen_of(network(8), batch_of([0, 1], shape=(1, 8, 8), dtype=torch.float32), scenario="C")
    with pytest.raises(UnsuitableError, match="one example, got 2"):
        read_pooled(seen)


def test_a_zero_gradient_is_refused(network, private):
    seen = seen_of(network(8), private(8), scenario="C")
    blank = {name: torch.zeros_like(value) for name, value in seen.update.tensors.items()}
    with pytest.raises(UnsuitableError, match="got zeros"):
        read_pooled(replace(seen, update=replace(seen.update, tensors=blank)))


def test_images_beyond_memory_are_refused_before_any_compute(network):
    batch = batch_of([0], shape=(1, 66, 66), dtype=torch.float32)
    with pytest.raises(UnsuitableError, match="at most 4096 rows, got 4356"):
        read_pooled(seen_of(network(66), batch, scenario="C"))


def test_facts_that_cannot_be_weighed_end_in_a_refusal_that_names_the_layer(network, private, monkeypatch):
    def broken(*args, **options):
        raise torch.linalg.LinAlgError

    monkeypatch.setattr("leakscope.attacks.closed.pooling.reading.infer", broken)
    with pytest.raises(UnsuitableError, match="did not settle at '0'"):
        read_pooled(seen_of(network(8), private(8), scenario="C"))
