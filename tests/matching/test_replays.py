from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakscope.attacks.ats_study import adam_l2
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.client import run_client, trainable
from leakscope.matching.distances import Direction
from leakscope.matching.replays import AsKnown, LocalSteps, OneGradient, predict, scale_known
from leakscope.matching.replays.replay import gradient_factor
from leakscope.metrics import score
from leakscope.observation.observe import observe
from leakscope.tensors import detach, global_norm
from leakscope.types import Knowledge, LocalTraining
from tiny import batch_of, dense, flat, seen_of, shared

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


MOMENTUM = LocalTraining(lr=0.1, epochs=2, batch_size=2, momentum=0.9, shuffle=True)
ADAM = LocalTraining(lr=0.02, epochs=2, batch_size=2, optimiser="adam", shuffle=True)
EIGHT = [1, 0, 3, 2, 1, 0, 2, 3]


def captured(local, *, seed=3):
    """A client of two epochs of four shuffled batches, seen by a server that knows all but the inputs."""
    model, batch = dense(), batch_of(EIGHT)
    run = run_client(model, batch, local=local, seed=seed)
    return batch, replace(observe(model, run.update, scenario="A", truth=batch), order=run.order)


def believing(seen, local):
    return replace(seen, local=local, update=replace(seen.update, local=local))


@pytest.mark.parametrize("local", [MOMENTUM, ADAM], ids=["momentum", "adam"])
def test_shuffled_epochs_are_predicted_exactly_at_the_truth_in_the_order_that_was_granted(local):
    batch, seen = captured(local)
    assert AsKnown().local(seen) == local
    target = AsKnown().target(seen)
    for name, value in predicted(AsKnown(), seen, batch).items():
        torch.testing.assert_close(value, target[name], rtol=1e-9, atol=1e-12)
    blind = predicted(LocalSteps(), replace(seen, order=None), batch)
    assert not torch.allclose(flat(blind), flat(target), rtol=1e-3)


def test_a_shuffled_order_that_was_not_told_is_not_simulated_unless_asked_for():
    _batch, seen = captured(MOMENTUM)
    assert AsKnown().local(replace(seen, order=None)) is None
    assert LocalSteps().local(replace(seen, order=None)) == MOMENTUM
    # Every step uses all examples: no order to know.
    whole = replace(MOMENTUM, batch_size=8)
    assert AsKnown().local(believing(replace(seen, order=None), whole)) == whole


@pytest.mark.parametrize(
    "local",
    [
        LocalTraining(lr=1e-7, steps=5, batch_size=3, momentum=0.9),
        LocalTraining(lr=1e-7, epochs=4, batch_size=3, momentum=0.8, nesterov=True, schedule="cosine"),
        LocalTraining(lr=1e-7, epochs=5, batch_size=3, momentum=0.9, dampening=0.3, schedule="linear"),
    ],
    ids=["momentum", "nesterov, cosine", "dampening, linear"],
)
def test_a_delta_of_nearly_equal_gradients_stands_for_their_mean(local):
    batch, model = batch_of([1, 0, 3]), dense()
    seen = seen_of(model, batch, local=local)
    assert scale_known(seen)
    for name, value in shared(model, batch).tensors.items():
        torch.testing.assert_close(OneGradient().target(seen)[name], value, rtol=1e-4, atol=1e-7)


def test_the_factor_of_plain_sgd_is_one_over_rate_times_steps():
    seen = seen_of(dense(), batch_of([1, 0, 3]), local=LOCAL)
    assert gradient_factor(seen) == -1 / (0.2 * 3)
    epochs = LocalTraining(lr=0.2, epochs=2, batch_size=2)
    assert gradient_factor(seen_of(dense(), batch_of([1, 0, 3]), local=epochs)) == -1 / (0.2 * 4)


def test_only_sums_of_gradients_have_the_length_of_a_gradient():
    _batch, seen = captured(ADAM)
    assert not scale_known(seen)
    assert scale_known(believing(seen, MOMENTUM))
    assert not scale_known(replace(seen, local=None, order=None))
    # Epochs over an unknown number of examples: so many steps, nobody knows how many.
    unknown = replace(believing(seen, MOMENTUM), num_examples=None, order=None)
    assert not scale_known(unknown)
    assert gradient_factor(unknown) == -1.0
    # One gradient is compared by its direction, a simulation by its length too.
    recipe = adam_l2(steps=2).recipe
    assert isinstance(recipe.distance_to(replace(seen, order=None)), Direction)
    assert recipe.distance_to(seen) == recipe.distance


@pytest.mark.parametrize("local", [MOMENTUM, ADAM], ids=["momentum", "adam"])
def test_the_right_description_matches_better_than_a_wrong_one(local):
    batch, seen = captured(local)
    wrong = LocalTraining(local.lr, epochs=2, batch_size=2, shuffle=True)
    attack = inverting_gradients(steps=40, replay="simulate")
    right, mistaken = (attack.reconstruct(believing(seen, told), seed=1) for told in (local, wrong))
    assert right.loss < 0.5 * mistaken.loss
    closeness = [float(score(found, batch).mse.mean()) for found in (right, mistaken)]
    assert closeness[0] < closeness[1]


def test_victims_with_other_orders_do_not_run_in_lockstep():
    seen = [captured(MOMENTUM, seed=seed)[1] for seed in (3, 4)]
    assert seen[0].order != seen[1].order
    shared_model = [replace(one, model=seen[0].model) for one in seen]
    attack = inverting_gradients(steps=3, replay="simulate")
    together = attack.reconstruct(shared_model, 5)
    for one, found in zip(shared_model, together, strict=True):
        assert attack.evaluate(one, found) == found.loss
