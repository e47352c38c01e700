from __future__ import annotations

import pytest
import torch

from leakscope.client import trainable
from leakscope.matching.replays import AsKnown, LocalSteps, OneGradient, predict
from leakscope.tensors import detach, global_norm
from leakscope.types import Knowledge, LocalTraining
from tiny import batch_of, dense, seen_of, shared

LOCAL = LocalTraining(lr=0.2, steps=3, batch_size=2)


def predicted(replay, seen, batch):
    parameters = {name: value.detach().requires_grad_() for name, value in trainable(seen.model).items()}
    return detach(predict(replay, seen, parameters, batch.inputs, batch.targets, create_graph=False))


@pytest.mark.parametrize("replay", [OneGradient(), LocalSteps(), AsKnown()], ids=lambda r: type(r).__name__)
def test_a_shared_gradient_is_predicted_exactly_at_the_truth(replay):
    batch = batch_of([1, 0, 3])
    seen = seen_of(dense(), batch)
    assert replay.needs(seen) == frozenset()
    for name, value in predicted(replay, seen, batch).items():
        torch.testing.assert_close(value, replay.target(seen)[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("replay", [LocalSteps(), AsKnown()], ids=lambda r: type(r).__name__)
def test_local_steps_are_predicted_exactly_at_the_truth(replay):
    batch = batch_of([1, 0, 3])
    seen = seen_of(dense(), batch, local=LOCAL)
    assert replay.local(seen) == LOCAL
    for name, value in predicted(replay, seen, batch).items():
        torch.testing.assert_close(value, replay.target(seen)[name], rtol=1e-12, atol=1e-14)


def test_a_delta_of_one_full_step_is_minus_rate_times_gradient():
    batch, model = batch_of([1, 0, 3]), dense()
    seen = seen_of(model, batch, local=LocalTraining(lr=0.2, steps=1, batch_size=3))
    for name, value in shared(model, batch).tensors.items():
        torch.testing.assert_close(OneGradient().target(seen)[name], value, rtol=1e-9, atol=1e-13)
        torch.testing.assert_close(seen.update.tensors[name], -0.2 * value, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("lr", [1e-1, 1e-4])
def test_local_steps_have_the_size_of_gradients_whatever_the_rate(lr):
    batch, model = batch_of([1, 0, 3]), dense()
    seen = seen_of(model, batch, local=LocalTraining(lr=lr, steps=4, batch_size=3))
    gradient = global_norm(shared(model, batch).tensors)
    assert 0.3 < float(global_norm(AsKnown().target(seen)) / gradient) < 1.1
    assert 0.3 < float(global_norm(predicted(AsKnown(), seen, batch)) / gradient) < 1.1


def test_an_unknown_rate_leaves_the_direction():
    batch, model = batch_of([1, 0, 3]), dense()
    training = LocalTraining(lr=0.2, steps=1, batch_size=3)
    blind = seen_of(model, batch, scenario="D", local=training)
    for replay in (OneGradient(), AsKnown()):
        assert replay.needs(blind) == frozenset()
        assert replay.local(blind) is None
        for name, value in shared(model, batch).tensors.items():
            torch.testing.assert_close(replay.target(blind)[name], 0.2 * value, rtol=1e-9, atol=1e-13)
    assert LocalSteps().needs(blind) == {Knowledge.LEARNING_RATE, Knowledge.LOCAL_STEPS}
