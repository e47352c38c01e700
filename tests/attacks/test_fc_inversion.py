from __future__ import annotations

import pytest
import torch
from torch import nn

from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.client import share
from leakscope.errors import UnsuitableError
from leakscope.matching.facts import Bounded, Noise, Sparse
from leakscope.metrics import score
from leakscope.models import build
from leakscope.rng import generator, normal_like
from leakscope.threat import observe
from leakscope.types import Batch, LocalTraining, SharedUpdate, Status
from tiny import batch_of, convolutional, dense, seen_of, shared


def network(dtype, **options):
    return build("mlp", num_classes=5, in_channels=3, image_size=8, hidden=[16], seed=2, **options).to(dtype)


@pytest.mark.parametrize("scenario", ["A", "C", "E"])
@pytest.mark.parametrize("combine", ["best-row", "least-squares"])
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


def test_several_examples_give_a_mixture_and_the_notes_say_so():
    found = fc_inversion().reconstruct(seen_of(dense(), batch_of([1, 2]), scenario="C"))
    assert any("2 examples behind one update" in note for note in found.notes)
    assert found.loss > 1e-3
    assert len(found.inputs) == 1


def test_the_loss_is_that_of_what_is_returned_and_of_nothing_else():
    seen = seen_of(dense(), batch_of([1, 2]))
    found = fc_inversion().reconstruct(seen)
    assert fc_inversion().evaluate(seen, found) == found.loss
    moved = found.__class__(found.inputs + 0.1, found.targets, found.loss, found.status)
    assert fc_inversion().evaluate(seen, moved) > found.loss


def test_the_informed_attacker_weighs_all_rows_and_gets_closer_under_noise():
    model, batch = dense(), batch_of([2])
    exact = shared(model, batch)
    noisy = {name: value + 1e-3 * normal_like(value, generator(0, name)) for name, value in exact.tensors.items()}
    seen = observe(model, SharedUpdate("gradient", noisy, num_examples=1), scenario="A", truth=batch)
    naive = fc_inversion()
    informed = naive.informed(Noise(1e-6))
    assert informed.combine == "least-squares"
    errors = [float((attack.reconstruct(seen).inputs - batch.inputs).square().mean()) for attack in (naive, informed)]
    assert errors[1] < 0.8 * errors[0]
    assert naive.informed(Sparse()) == naive
    assert naive.informed(Bounded()) == naive


def test_nothing_to_divide_by_is_no_evidence():
    model = dense()
    zeros = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
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
