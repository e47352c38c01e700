from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope import data
from leakscope.attacks.closed.linear.rows import least_squares, rank_one
from leakscope.attacks.fc_inversion import fc_inversion, layer_inputs
from leakscope.client import share
from leakscope.defences.clip import clip
from leakscope.defences.noise import gaussian_noise
from leakscope.defences.prune import prune
from leakscope.errors import UnsuitableError
from leakscope.metrics import score
from leakscope.models import build
from leakscope.models.rgap import logistic_loss
from leakscope.observation.observe import observe
from leakscope.rng import generator, normal, normal_like
from leakscope.types import Batch, LocalTraining, SharedUpdate, Status
from tiny import batch_of, convolutional, dense, seen_of, shared


def network(dtype, **options):
    return build("mlp", num_classes=5, in_channels=3, image_size=8, hidden=[16], seed=2, **options).to(dtype)


@pytest.mark.parametrize("scenario", ["A", "C", "E"])
@pytest.mark.parametrize("combine", ["best-row", "least-squares", "rank-one"])
@pytest.mark.parametrize("constants", [None, ([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])], ids=["plain", "normalised"])
def test_one_example_is_exact_in_double_precision(scenario, combine, constants):
    model, batch = network(torch.float64, normalise=constants), batch_of([3], shape=(3, 8, 8))
    seen = seen_of(model, batch, scenario=scenario)
    found = fc_inversion(combine=combine).reconstruct(seen)
    assert float((found.inputs - batch.inputs).norm() / batch.inputs.norm()) <= 1e-12
    assert found.loss <= 1e-12
    assert found.targets.tolist() == [3]
    assert found.status is Status.OK


def test_one_example_in_single_precision_is_above_80_decibels():
    batch = batch_of([3], shape=(3, 8, 8), dtype=torch.float32)
    found = fc_inversion().reconstruct(seen_of(network(torch.float32), batch))
    assert found.inputs.dtype == torch.float32
    assert float(score(found, batch).psnr) >= 80


def test_a_delta_of_one_step_is_inverted_without_knowing_the_rate():
    batch = batch_of([3], shape=(3, 8, 8))
    seen = seen_of(network(torch.float64), batch, scenario="E", local=LocalTraining(lr=1e-3))
    torch.testing.assert_close(fc_inversion().reconstruct(seen).inputs, batch.inputs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_rows_that_every_example_reaches_give_a_mixture_which_is_no_evidence(count):
    found = fc_inversion().reconstruct(seen_of(dense(), batch_of(list(range(4))[:count] * 2), scenario="C"))
    assert found.status is Status.DIVERGED
    assert any("the result is their mixture" in note for note in found.notes)
    assert found.loss > 1e-3
    assert len(found.inputs) == 1


def rectified(*, classes=10, hidden=512, dtype=torch.float32, seed=0, **options):
    model = build("mlp", num_classes=classes, in_channels=1, image_size=8, hidden=[hidden], seed=seed, **options)
    return model.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scenario", ["A", "C", "E"])
def test_examples_that_reach_rows_alone_are_isolated_exactly_with_their_labels(scenario, dtype):
    batch = data.load("digits", split="test", indices=[0, 1, 2, 3]).to(dtype)
    seen = seen_of(rectified(dtype=dtype, normalise="mnist"), batch, scenario=scenario)
    found = fc_inversion().reconstruct(seen)
    measured = score(found, batch)
    assert found.status is Status.OK
    assert len(found.inputs) == 4
    assert float(measured.psnr.min()) > 80
    assert measured.label_correct.all()
    assert found.loss < 1e-4
    assert fc_inversion().evaluate(seen, found) == found.loss
    assert any("examples isolated" in note for note in found.notes)


def test_what_is_not_isolated_is_left_out_and_nothing_false_is_returned():
    batch = data.load("digits", split="test", indices=list(range(8)))
    found = fc_inversion().reconstruct(seen_of(rectified(hidden=128), batch, scenario="C"))
    measured = score(found, batch)
    paired = measured.assignment >= 0
    assert 1 <= len(found.inputs) < 8
    assert int(paired.sum()) == len(found.inputs)
    assert float(measured.psnr[paired].min()) > 80
    assert any(f"{len(found.inputs)} of 8 examples isolated" in note for note in found.notes)


def test_a_single_logit_makes_rows_agree_on_mixtures_which_the_replay_unmasks():
    images = data.load("digits", split="test", indices=[0, 1, 2]).inputs
    batch = Batch(images, torch.tensor([0, 1, 1]))
    model = rectified(classes=1)
    seen = observe(model, shared(model, batch, loss=logistic_loss), scenario="C", truth=batch, loss=logistic_loss)
    found = fc_inversion().reconstruct(seen)
    measured = score(found, batch)
    assert found.status is Status.OK
    assert float(measured.psnr[measured.assignment >= 0].min()) > 80


def test_a_loss_that_cannot_be_replayed_asks_for_three_rows():
    def whole(logits, targets):
        if len(logits) == 1:
            raise ValueError("this loss compares examples")
        return nn.functional.cross_entropy(logits, targets)

    batch = data.load("digits", split="test", indices=[0, 1, 2])
    model = rectified()
    seen = observe(model, shared(model, batch, loss=whole), scenario="C", truth=batch, loss=whole)
    found = fc_inversion().reconstruct(seen)
    measured = score(found, batch)
    assert found.targets is None
    assert float(measured.psnr[measured.assignment >= 0].min()) > 80


def test_the_input_of_every_linear_layer_is_read_exactly():
    model = build("lenet5", num_classes=10, in_channels=1, image_size=16, seed=1).double()
    batch = batch_of([3], shape=(1, 16, 16))
    received = {}
    for name in ("fc1", "fc2", "fc3"):
        layer = model.get_submodule(name)
        layer.register_forward_pre_hook(lambda _m, values, name=name: received.setdefault(name, values[0].detach()))
    with torch.no_grad():
        model(batch.inputs)
    for name in ("fc1", "fc2", "fc3"):
        model.get_submodule(name)._forward_pre_hooks.clear()
    found = layer_inputs(seen_of(model, batch, scenario="E", local=LocalTraining(lr=1e-2)))
    assert list(found) == ["fc1", "fc2", "fc3"]
    for name, values in found.items():
        torch.testing.assert_close(values, received[name], rtol=0, atol=1e-9)


def test_layers_whose_gradient_is_a_sum_or_zero_or_without_bias_are_left_out():
    class Odd(nn.Module):
        """A layer along tokens, one used twice, one without bias, and one that is plain."""

        def __init__(self):
            super().__init__()
            self.tokens, self.twice = nn.Linear(6, 6), nn.Linear(36, 36)
            self.unbiased, self.last = nn.Linear(36, 8, bias=False), nn.Linear(8, 4)

        def forward(self, inputs):
            flat = self.tokens(inputs[:, 0]).flatten(1)
            return self.last(self.unbiased(self.twice(self.twice(flat).sigmoid())))

    model, batch = Odd().double(), batch_of([1])
    assert list(layer_inputs(seen_of(model, batch))) == ["last"]
    silent = {name: value.clone() for name, value in shared(model, batch).tensors.items()}
    silent["last.bias"].zero_()
    assert layer_inputs(observe(model, SharedUpdate("gradient", silent), truth=batch)) == {}


def test_layer_inputs_refuses_batches():
    with pytest.raises(UnsuitableError, match="one example behind the update, got 2"):
        layer_inputs(seen_of(dense(), batch_of([1, 2])))


def test_a_model_that_is_one_linear_layer_is_inverted():
    model, batch = nn.Sequential(nn.Flatten(), nn.Linear(36, 4)).double(), batch_of([1])
    assert float((fc_inversion().reconstruct(seen_of(model, batch)).inputs - batch.inputs).abs().max()) < 1e-12
    bare, vector = nn.Linear(6, 3).double(), Batch(batch_of([1]).inputs[:, 0, 0], torch.tensor([1]))
    assert float((fc_inversion().reconstruct(seen_of(bare, vector)).inputs - vector.inputs).abs().max()) < 1e-12


def test_the_loss_is_that_of_what_is_returned_and_of_nothing_else():
    seen = seen_of(dense(), batch_of([1, 2]))
    found = fc_inversion().reconstruct(seen)
    assert fc_inversion().evaluate(seen, found) == found.loss
    moved = found.__class__(found.inputs + 0.1, found.targets, found.loss, found.status)
    assert fc_inversion().evaluate(seen, moved) > found.loss


def test_the_informed_attacker_fits_the_whole_layer_and_gets_closer_under_noise():
    model, batch = dense(), batch_of([2])
    exact = shared(model, batch)
    noisy = {name: value + 1e-3 * normal_like(value, generator(0, name)) for name, value in exact.tensors.items()}
    seen = observe(model, SharedUpdate("gradient", noisy, num_examples=1), scenario="A", truth=batch)
    naive = fc_inversion()
    informed = gaussian_noise(1e-3).adapt(naive)
    assert informed == fc_inversion(combine="rank-one")
    errors = [float((attack.reconstruct(seen).inputs - batch.inputs).square().mean()) for attack in (naive, informed)]
    assert errors[1] < 0.8 * errors[0]
    assert prune(0.5).adapt(naive) == clip(1.0).adapt(naive) == naive
    assert prune(0.5).adapt(informed) == informed, "what was known stays known"


def noisy_layer(sigma: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weight and bias gradient of one input behind 40 rows with noise of their own size, and that input."""
    deltas, inputs = (normal((size,), generator(0, "layer", size), like=torch.zeros(0).double()) for size in (40, 300))
    weight, bias = torch.outer(deltas, inputs), deltas.clone()
    return (
        weight + sigma * normal_like(weight, generator(0, "w")),
        bias + sigma * normal_like(bias, generator(0)),
        inputs,
    )


def test_rank_one_is_the_leading_singular_vector_and_far_closer_than_bias_entries_alone():
    weight, bias, inputs = noisy_layer(1.0)
    leading = torch.linalg.svd(torch.cat([weight, bias[:, None]], 1)).Vh[0]
    torch.testing.assert_close(rank_one(weight, bias), leading[:-1] / leading[-1], rtol=1e-6, atol=1e-6)
    scaled = rank_one(weight, bias)
    errors = [
        float(1 - functional.cosine_similarity(one, inputs, dim=0)) for one in (scaled, least_squares(weight, bias))
    ]
    assert errors[0] < 0.7 * errors[1]


def test_noise_carries_no_value_past_its_bounds():
    model, batch = dense(), batch_of([2])
    update = shared(model, batch, defence=gaussian_noise(0.1))
    for bounds, inside in (((0.0, 1.0), True), (None, False)):
        seen = replace(observe(model, update, scenario="A", truth=batch), bounds=bounds)
        found = fc_inversion(combine="rank-one").reconstruct(seen, diagnosing=False)
        assert (float(found.inputs.min()) >= 0 and float(found.inputs.max()) <= 1) is inside


def test_rank_one_reads_off_other_rows_what_was_zeroed_of_one():
    weight, bias, inputs = noisy_layer(0.0)
    holes = torch.rand(weight.shape, generator=generator(0, "holes")) < 0.6
    few = torch.where(torch.arange(len(bias)) < 3, bias, 0)
    torch.testing.assert_close(rank_one(weight * ~holes, few), inputs, rtol=1e-3, atol=1e-3)
    # Nothing was shared of an input: nothing is known of it.
    assert float(rank_one(weight * (torch.arange(300) != 7), few)[7]) == 0


def test_nothing_to_divide_by_is_no_evidence():
    model = dense()
    zeros = dict(shared(model, batch_of([1])).tensors)
    zeros["1.bias"] = torch.zeros_like(zeros["1.bias"])
    seen = observe(model, SharedUpdate("gradient", zeros), scenario="E", input_shape=(1, 6, 6))
    found = fc_inversion().reconstruct(seen)
    assert found.status is Status.DIVERGED
    assert found.loss != found.loss
    assert any("nothing to divide by" in note for note in found.notes)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (convolutional(), "a convolution.*use inverting-gradients"),
        (nn.Sequential(nn.Flatten(), nn.Linear(36, 8, bias=False), nn.ReLU(), nn.Linear(8, 4)).double(), "with bias"),
        (nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(9, 4)).double(), "36 numbers"),
    ],
    ids=["convolution", "no bias", "not the whole input"],
)
def test_networks_it_cannot_invert_are_refused(model, match):
    with pytest.raises(UnsuitableError, match=match):
        fc_inversion().reconstruct(seen_of(model, batch_of([1])))


def test_a_first_layer_that_is_not_shared_is_refused():
    model = dense()
    part = {name: value for name, value in shared(model, batch_of([1])).tensors.items() if name.startswith("3")}
    seen = observe(model, SharedUpdate("gradient", part), scenario="E", input_shape=(1, 6, 6))
    with pytest.raises(UnsuitableError, match="needs a shared linear layer"):
        fc_inversion().reconstruct(seen)


def test_a_nonlinearity_before_the_layer_is_noticed() -> None:
    class Behind(torch.nn.Module):
        """Registers the linear layer first, but runs it after an activation."""

        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(16, 4)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.fc(torch.sigmoid(inputs.flatten(1)))

    batch = Batch(torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([1]))
    model = Behind()
    seen = observe(model, share(model, batch), scenario="C", truth=batch)
    with pytest.raises(UnsuitableError, match="unchanged"):
        fc_inversion().reconstruct(seen)


def test_a_mixture_is_no_evidence_where_the_number_of_examples_is_unknown():
    model = dense(classes=8)
    several = observe(model, shared(model, batch_of([1, 2, 3, 4])), scenario="E", input_shape=(1, 6, 6))
    found = fc_inversion().reconstruct(several)
    assert found.status is Status.DIVERGED
    assert any("mixture" in note for note in found.notes)


def test_half_precision_and_pruning_leave_one_example_one_example():
    model = dense(classes=8)
    update = shared(model, batch_of([1]))
    halved = {name: value.half().double() for name, value in update.tensors.items()}
    pruned = {name: value * (value.abs() > value.abs().median()) for name, value in update.tensors.items()}
    for tensors in (halved, pruned):
        seen = observe(model, SharedUpdate("gradient", tensors), scenario="E", input_shape=(1, 6, 6))
        found = fc_inversion().reconstruct(seen)
        # Without the truth nobody can tell half of an update from another declaration; but it is no mixture.
        assert found.status is (Status.OK if tensors is halved else Status.UNEXPLAINED)
        assert not any("mixture" in note for note in found.notes)
