from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope.client import replay_gradient, replay_local, share, trainable
from leakscope.errors import BadInputError
from leakscope.types import Batch, LocalTraining
from tiny import batch_of, convolutional, dense, shared

NETWORKS = {
    "dense": lambda: dense(),
    "batch norm, eval": lambda: convolutional(norm=True).eval(),
    "batch norm, train": lambda: convolutional(norm=True).train(),
}
TRAININGS = {
    "one step": LocalTraining(lr=0.3, steps=1, batch_size=3),
    "wraps round": LocalTraining(lr=0.3, steps=4, batch_size=2),
    "batch larger than data": LocalTraining(lr=0.3, steps=2, batch_size=9),
}


def leaves(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().requires_grad_() for name, value in trainable(model).items()}


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_a_shared_gradient_is_what_backward_gives(make):
    batch, model, reference = batch_of([1, 0, 3]), make(), make()
    functional.cross_entropy(reference(batch.inputs), batch.targets).backward()
    update = shared(model, batch)
    assert update.kind == "gradient"
    assert update.num_examples == 3
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(update.tensors[name], parameter.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("local", TRAININGS.values(), ids=TRAININGS)
@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_a_delta_is_after_minus_before_of_torch_sgd(make, local):
    batch, model, reference = batch_of([1, 0, 3]), make(), make()
    before = {name: value.detach().clone() for name, value in reference.named_parameters()}
    optimiser = torch.optim.SGD(reference.parameters(), lr=local.lr)
    for step in local.order(3):
        chosen = list(step)
        optimiser.zero_grad()
        functional.cross_entropy(reference(batch.inputs[chosen]), batch.targets[chosen]).backward()
        optimiser.step()
    update = shared(model, batch, local=local)
    assert update.kind == "delta"
    assert update.local == local
    for name, parameter in reference.named_parameters():
        torch.testing.assert_close(update.tensors[name], parameter.detach() - before[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("local", [None, *TRAININGS.values()], ids=["gradient", *TRAININGS])
@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_the_attackers_replay_is_the_clients_step(make, local):
    batch, model = batch_of([1, 0, 3]), make()
    update = shared(model, batch, local=local)
    replay = replay_gradient if local is None else replay_local
    extra = {} if local is None else {"local": local}
    found = replay(
        model, leaves(model), batch.inputs, batch.targets, loss=functional.cross_entropy, create_graph=True, **extra
    )
    for name, value in update.tensors.items():
        torch.testing.assert_close(found[name].detach(), value, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("local", [None, LocalTraining(lr=0.3, steps=3, batch_size=2)], ids=["gradient", "local steps"])
def test_a_replay_can_be_differentiated_by_its_inputs_and_soft_targets(local):
    model, batch = dense(), batch_of([1, 0, 3])
    names = ["1.weight", "3.bias"]

    def predicted(inputs, targets):
        if local is None:
            found = replay_gradient(model, leaves(model), inputs, targets, loss=functional.cross_entropy)
        else:
            found = replay_local(model, leaves(model), inputs, targets, local=local, loss=functional.cross_entropy)
        return torch.stack([found[name].square().sum() for name in names])

    soft = torch.full((3, 4), 0.25, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(predicted, (batch.inputs.clone().requires_grad_(), soft))


@pytest.mark.parametrize("local", [None, LocalTraining(lr=0.1, steps=2, batch_size=1)], ids=["gradient", "local steps"])
def test_sharing_leaves_everything_of_the_caller_as_it_was(local):
    model, batch = convolutional(norm=True).train(), batch_of([1, 0, 3])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, state = batch.inputs.clone(), torch.random.get_rng_state()
    share(model, batch, local=local)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert model.training
    assert torch.equal(batch.inputs, inputs)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_active_dropout_draws_from_the_seed_and_not_from_the_callers_numbers():
    model, batch = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, 4)).double().train(), batch_of([1, 0])
    state = torch.random.get_rng_state()
    first, again, other = (shared(model, batch, seed=seed).tensors["2.weight"] for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_an_update_does_not_change_when_the_model_trains_on():
    model, batch = dense(), batch_of([1])
    update = shared(model, batch)
    copies = {name: value.clone() for name, value in update.tensors.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert all(torch.equal(value, copies[name]) for name, value in update.tensors.items())


def test_a_callers_no_grad_does_not_matter():
    model, batch = dense(), batch_of([1])
    with torch.no_grad():
        inside = shared(model, batch)
    assert all(torch.equal(value, inside.tensors[name]) for name, value in shared(model, batch).tensors.items())


def test_only_parameters_that_train_are_shared():
    model = dense()
    model[1].requires_grad_(False)
    assert list(shared(model, batch_of([1])).tensors) == ["3.weight", "3.bias"]
    with pytest.raises(BadInputError, match=r"no parameter that gets a gradient; call requires_grad_"):
        share(model.requires_grad_(False), batch_of([1]))


def test_the_loss_may_be_any_callable():
    model, batch = dense(), batch_of([1, 2])
    half = shared(model, batch, loss=lambda output, targets: 0.5 * functional.cross_entropy(output, targets))
    for name, value in shared(model, batch).tensors.items():
        torch.testing.assert_close(half.tensors[name], 0.5 * value)


def test_soft_targets_that_are_one_hot_give_the_gradient_of_the_label():
    model, batch = dense(), batch_of([1, 2])
    soft = Batch(batch.inputs, functional.one_hot(batch.targets, 4).double())
    hard = shared(model, batch)
    for name, value in shared(model, soft).tensors.items():
        torch.testing.assert_close(value, hard.tensors[name])


@pytest.mark.parametrize("label", [-1, 4])
def test_labels_out_of_range_are_refused_before_a_kernel_fails(label):
    with pytest.raises(BadInputError, match=rf"labels must lie in 0…3 for this model, got .*{label}.*map the labels"):
        share(dense(), batch_of([0, label]))


@pytest.mark.parametrize(
    ("batch", "match"),
    [
        (batch_of([1], shape=(3, 6, 6)), r"does not accept inputs of shape \[1, 3, 6, 6\]"),
        (batch_of([1], dtype=torch.float32), r"in torch.float32.*convert the batch with .to\(\)"),
        (Batch(batch_of([1]).inputs, torch.tensor([1], dtype=torch.int32)), r"int64, got torch.int32.*\.long\(\)"),
    ],
)
def test_a_batch_of_another_model_is_refused(batch, match):
    with pytest.raises(BadInputError, match=match):
        share(dense(), batch)


def test_an_exploding_update_is_refused():
    # No ReLU: a first step that switches every unit off would end the explosion before it begins.
    steep = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Linear(8, 4)).double()
    with pytest.raises(BadInputError, match=r"update holds NaN or Inf; lower the learning rate"):
        share(steep, batch_of([1, 2]), local=LocalTraining(lr=1e300, steps=4, batch_size=1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_updates_stay_on_the_models_device():
    update = shared(dense().cuda(), batch_of([1]).to("cuda"))
    assert {value.device.type for value in update.tensors.values()} == {"cuda"}
