from __future__ import annotations

import pytest
import torch

from leakscope.matching.penalties import BatchNormPrior, Trial
from leakscope.matching.penalties.network import target_statistics
from leakscope.networks import norm_layers, norm_statistics
from leakscope.observation.observe import observe
from leakscope.types import Batch
from tiny import batch_of, convolutional, dense, seen_of, shared


def at(images: torch.Tensor, seen, restarts: int = 1) -> Trial:
    return Trial(
        images,
        images,
        torch.zeros(images.shape[:2], dtype=torch.long),
        seen[0].model,
        seen=tuple(seen),
        restarts=restarts,
    )


def _number(value: torch.Tensor) -> float:
    return float(value.detach())


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_exact_statistics_are_used_where_granted_and_are_met_by_the_truth(training):
    model = convolutional(norm=True).train(training)
    batch = batch_of([1, 2, 3])
    granted = seen_of(model, batch, scenario="A")
    poor = seen_of(model, batch, scenario="C")
    prior = BatchNormPrior(1.0)
    truth = batch.inputs[None]
    assert _number(prior.value(at(truth, [granted]))) < 1e-5
    assert _number(prior.value(at(1 - truth, [granted]))) > 1e-2
    # Running statistics of an untrained network are 0 and 1, not those of the batch.
    assert _number(prior.value(at(truth, [poor]))) > 0.1
    assert target_statistics(poor.model, poor)["1"][0].tolist() == [0.0, 0.0, 0.0]


def test_groups_have_their_own_victims_and_do_not_mix_in_training_mode():
    model = convolutional(norm=True).train()
    batches = [batch_of([1, 2], seed=seed) for seed in range(2)]
    seen = [observe(model, shared(model, one), scenario="A", truth=one) for one in batches]
    images = torch.stack([batches[0].inputs, 1 - batches[0].inputs, batches[1].inputs, 1 - batches[1].inputs])
    value = BatchNormPrior(1.0).value(at(images, seen, restarts=2))
    assert value[0] < 1e-5 < value[1]
    assert value[2] < 1e-5 < value[3]


def test_the_slope_is_right_finite_at_the_truth_and_leaves_the_network_as_it_was():
    model = convolutional(norm=True).train()
    batch = batch_of([1, 2])
    seen = seen_of(model, batch, scenario="A")
    before = {name: value.clone() for name, value in seen.model.state_dict().items()}
    x = (0.9 * batch.inputs[None] + 0.02).requires_grad_()
    assert torch.autograd.gradcheck(lambda value: BatchNormPrior(1.0).value(at(value, [seen])), x)
    exact = batch.inputs[None].clone().requires_grad_()
    (slope,) = torch.autograd.grad(BatchNormPrior(1.0).value(at(exact, [seen])).sum(), exact)
    assert torch.isfinite(slope).all()
    assert all(torch.equal(value, before[name]) for name, value in seen.model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in seen.model.modules())


def test_a_network_without_batch_norm_has_no_prior_and_still_a_gradient():
    seen = seen_of(dense(), batch_of([1]), scenario="C")
    x = torch.rand(2, 1, 1, 6, 6, dtype=torch.float64).requires_grad_()
    value = BatchNormPrior(1.0).value(at(x, [seen], restarts=2))
    assert value.tolist() == [0.0, 0.0]
    assert torch.autograd.grad(value.sum(), x)[0].abs().max() == 0
    assert norm_layers(seen.model) == {}


def test_statistics_are_those_of_what_the_layer_receives():
    model = convolutional(norm=True)
    batch = Batch(batch_of([0, 1]).inputs, torch.tensor([0, 1]))
    mean, variance = norm_statistics(model, batch.inputs)["1"]
    received = model[0](batch.inputs)
    torch.testing.assert_close(mean, received.mean((0, 2, 3)))
    torch.testing.assert_close(variance, received.var((0, 2, 3), unbiased=False))
