from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from data_folder import data_root, needs
from leakscope import data
from leakscope.attacks.closed.recursive.start import binary_targets
from leakscope.attacks.rgap import rank_report, rgap
from leakscope.audits.cell import run_cell
from leakscope.client import share
from leakscope.errors import UnsuitableError
from leakscope.metrics import score
from leakscope.models import build
from leakscope.models.rgap import logistic_loss
from leakscope.observation.observe import observe
from leakscope.rng import generator, normal_like
from leakscope.testing import check_attack
from leakscope.types import Batch, LocalTraining, SharedUpdate, Status
from tiny import batch_of, shared

LEAKY = nn.LeakyReLU(0.2)


def seeded(*layers: nn.Module, seed: int = 0) -> nn.Sequential:
    """A chain in double precision whose weights depend on nothing but the seed."""
    model = nn.Sequential(*layers).double()
    for name, value in model.named_parameters():
        bound = 1 / math.sqrt(value[0].numel() if value.ndim > 1 else 10)
        with torch.no_grad():
            value.copy_(bound * (2 * torch.rand(value.shape, generator=generator(seed, name), dtype=value.dtype) - 1))
    return model


def dense(*, classes: int, bias: bool = False) -> nn.Sequential:
    return seeded(
        nn.Flatten(),
        nn.Linear(36, 30, bias=bias),
        LEAKY,
        nn.Linear(30, 20, bias=False),
        LEAKY,
        nn.Linear(20, classes, bias=False),
    )


def convolutional(*, filters: int = 8, classes: int = 4, bias: bool = True, activation: nn.Module = LEAKY) -> nn.Module:
    return seeded(
        nn.Conv2d(1, filters, 3, stride=1, padding=1, bias=bias),
        activation,
        nn.Conv2d(filters, 8, 3, stride=2, padding=1, bias=bias),
        activation,
        nn.Flatten(),
        nn.Linear(72, classes, bias=bias),
    )


def attacked(model, batch, *, scenario="C", loss=None, local=None):
    update = shared(model, batch, loss=loss, local=local)
    seen = observe(model, update, scenario=scenario, truth=batch, loss=loss)
    found = rgap().reconstruct(seen)
    assert rgap().evaluate(seen, found) == found.loss
    return found


def error(found, batch) -> float:
    return float((found.inputs - batch.inputs).norm() / batch.inputs.norm())


def test_the_contract_holds_on_the_smallest_problem():
    check_attack(rgap())


@pytest.mark.parametrize("place", range(8))
def test_the_papers_dense_network_gives_its_input_away_to_rounding(place):
    model = build("fcn3", num_classes=1, in_channels=1, image_size=8, seed=place, normalise="mnist")
    images = data.load("digits", split="test", indices=[place])
    batch = Batch(images.inputs, torch.tensor([place % 2]))
    found = attacked(model, batch, loss=logistic_loss)
    assert found.status is Status.OK
    assert found.inputs.dtype == torch.float32
    assert error(found, batch) < 1e-4
    assert found.targets.tolist() == [place % 2]


@pytest.mark.data
@needs("cifar10.npz")
def test_the_papers_dense_network_on_colour_images(monkeypatch):
    monkeypatch.setenv("LEAKSCOPE_DATA", str(data_root()))
    model = build("fcn3", num_classes=1, seed=1)
    for place in range(2):
        images = data.load("cifar10", split="test", indices=[place])
        batch = Batch(images.inputs, torch.tensor([place]))
        assert error(attacked(model, batch, loss=logistic_loss), batch) < 1e-4


def test_the_papers_convolutional_network_is_exact_on_small_images():
    model = build("cnn6", num_classes=1, in_channels=1, image_size=16, seed=2).double()
    batch = batch_of([1], shape=(1, 16, 16))
    found = attacked(model, batch, loss=logistic_loss)
    assert rank_report(model, (1, 16, 16)).exact
    assert any("every layer is determined" in note for note in found.notes)
    assert error(found, batch) < 1e-8


@pytest.mark.slow
@pytest.mark.data
@needs("cifar10.npz")
def test_the_papers_convolutional_network_at_full_size_in_single_precision(monkeypatch):
    monkeypatch.setenv("LEAKSCOPE_DATA", str(data_root()))
    images = data.load("cifar10", split="test", indices=[0])
    batch = Batch(images.inputs, torch.tensor([1]))
    found = attacked(build("cnn6", num_classes=1, seed=1), batch, loss=logistic_loss)
    assert found.status is Status.OK
    assert float(score(found, batch).psnr) > 80


@pytest.mark.parametrize("scenario", ["A", "C", "E"])
@pytest.mark.parametrize("classes", [2, 5], ids=["two classes", "five classes"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "first bias"])
def test_cross_entropy_without_a_last_bias_is_exact(scenario, classes, bias):
    batch = batch_of([1])
    found = attacked(dense(classes=classes, bias=bias), batch, scenario=scenario)
    assert found.status is Status.OK
    assert error(found, batch) < 1e-9
    assert found.targets.tolist() == [1]


@pytest.mark.parametrize("activation", [LEAKY, nn.Sigmoid(), nn.Tanh(), nn.Identity()], ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("bias", [False, True])
def test_full_rank_convolutions_are_exact(activation, bias):
    batch = batch_of([2])
    model = convolutional(activation=activation, bias=bias)
    found = attacked(model, batch)
    assert rank_report(model, (1, 6, 6)).exact
    assert found.status is Status.OK
    assert error(found, batch) < 1e-8


def test_the_sigmoid_network_of_deep_leakage_is_solved_in_closed_form():
    model = build("lenet-dlg", num_classes=10, in_channels=1, image_size=8, seed=0).double()
    batch = batch_of([3], shape=(1, 8, 8))
    found = attacked(model, batch)
    assert found.status is Status.OK
    assert error(found, batch) < 1e-6


def test_what_stands_above_a_linear_layer_with_bias_does_not_matter():
    model = seeded(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        LEAKY,
        nn.Flatten(),
        nn.Linear(288, 10),
        nn.ReLU(),
        nn.LayerNorm(10),
        nn.Linear(10, 4),
    )
    batch = batch_of([2])
    found = attacked(model, batch, scenario="E")
    assert any("from '3' down" in note for note in found.notes)
    assert error(found, batch) < 1e-8
    assert found.targets.tolist() == [2]


def test_a_narrow_convolution_is_predicted_and_reported_as_deficient():
    model = convolutional(filters=1, bias=False)
    narrow = seeded(nn.Conv2d(3, 1, 3, stride=2, padding=1, bias=False), LEAKY, nn.Flatten(), nn.Linear(9, 4))
    batch = batch_of([2], shape=(3, 6, 6))
    report = rank_report(narrow, (3, 6, 6))
    first = report.layers[0]
    assert (first.unknowns, first.gradient_equations, first.weight_equations) == (192, 27, 9)
    assert first.padding_equations == 84
    # One gradient equation repeats the others and the output's: ⟨∂L/∂W, W⟩ = ⟨k, W ∗ x⟩.
    assert first.rank == 84 + 27 + 9 - 1
    assert first.verdict == "deficient"
    assert not report.exact
    assert "rank 119 of 192 unknowns from 120 equations, deficient" in str(report)
    found = attacked(narrow, batch)
    assert any("least-norm solution at 0: rank 119 of 192" in note for note in found.notes)
    assert error(found, batch) > 0.1
    # It fits the gradient although it is not the input, and is the shortest that does.
    assert found.loss < 1e-6
    assert float(found.inputs.norm()) < float(batch.inputs.norm())
    assert rank_report(model, (1, 6, 6)).layers[1].verdict == "exact"


def test_two_inputs_with_one_gradient_are_told_apart_by_their_range():
    # Logit 0.4 for label 1 lies where −u/(1+eᵘ) is taken twice.
    model = dense(classes=1)
    batch = batch_of([1])
    with torch.no_grad():
        model.get_parameter("5.weight").mul_(0.4 / float(model(batch.inputs)))
    found = attacked(model, batch, loss=logistic_loss)
    assert error(found, batch) < 1e-9
    assert any("times as large" in note for note in found.notes)


def test_the_larger_of_two_inputs_is_chosen_where_the_smaller_one_is_no_valid_data():
    # Logit 2.2: the twin is the input scaled down, which the smallest norm alone would choose.
    model = dense(classes=1)
    plain = batch_of([1])
    batch = Batch(0.6 + 0.4 * plain.inputs, plain.targets, bounds=(0.6, 1.0))
    with torch.no_grad():
        model.get_parameter("5.weight").mul_(2.2 / float(model(batch.inputs)))
    found = attacked(model, batch, loss=logistic_loss)
    assert error(found, batch) < 1e-9
    assert any("times as large" in note for note in found.notes)


def test_a_double_root_is_found_though_no_sign_changes():
    model = dense(classes=1)
    batch = batch_of([1])
    with torch.no_grad():
        model.get_parameter("5.weight").mul_(1.2784645 / float(model(batch.inputs)))
    assert error(attacked(model, batch, loss=logistic_loss), batch) < 1e-2


@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_labels_of_either_sign_are_recognised(label):
    def margin(logits, targets):
        return functional.softplus(-targets * logits.squeeze(1)).mean()

    batch = Batch(batch_of([0]).inputs, torch.tensor([label], dtype=torch.float64))
    found = attacked(dense(classes=1), batch, loss=margin)
    assert error(found, batch) < 1e-9
    assert found.targets.tolist() == [label]


def test_binary_targets_take_the_form_of_the_loss():
    model, batch = dense(classes=1), Batch(batch_of([0]).inputs, torch.ones(1, 1, dtype=torch.float64))
    loss = functional.binary_cross_entropy_with_logits
    seen = observe(model, shared(model, batch, loss=loss), scenario="E", input_shape=(1, 6, 6), loss=loss)
    assert [target.tolist() for target in binary_targets(seen)] == [[[0.0]], [[1.0]]]
    with pytest.raises(UnsuitableError, match="no form of a binary target"):
        binary_targets(replace(seen, loss=functional.cross_entropy))


def test_a_single_logit_goes_through_a_whole_audit():
    batches = [batch_of([1]), Batch(batch_of([0], seed=4).inputs, torch.tensor([0]))]
    result = run_cell(dense(classes=1), batches, rgap(), loss=logistic_loss, scenario="C")
    assert result.status is Status.OK
    assert float(result.scores.psnr.min()) > 100
    assert result.scores.label_correct.all()


def test_a_delta_of_one_step_is_solved_and_needs_the_rate_only_without_bias():
    batch, local = batch_of([2]), LocalTraining(lr=1e-3)
    assert error(attacked(dense(classes=4), batch, scenario="C", local=local), batch) < 1e-6
    assert error(attacked(convolutional(), batch, scenario="E", local=local), batch) < 1e-6
    with pytest.raises(UnsuitableError, match="without its learning rate"):
        attacked(dense(classes=4), batch, scenario="E", local=local)


def test_an_input_far_outside_the_valid_range_is_no_evidence():
    # The gradient of an input in [0, 40]: the closed form finds it, but nobody's data in [0, 1] explains the update.
    model, batch = convolutional(), batch_of([2])
    large = Batch(40 * batch.inputs, batch.targets, bounds=None)
    seen = observe(model, shared(model, large), scenario="C", truth=large)
    assert rgap().reconstruct(seen).status is Status.OK
    found = rgap().reconstruct(replace(seen, bounds=(0.0, 1.0)))
    assert found.status is not Status.OK
    assert error(found, large) < 1e-6


def test_noise_is_seen_in_the_loss_and_ends_as_diverged():
    model, batch = convolutional(), batch_of([2])
    exact = shared(model, batch)
    loud = {name: value + 10 * normal_like(value, generator(0, name)) for name, value in exact.tensors.items()}
    found = rgap().reconstruct(observe(model, SharedUpdate("gradient", loud, num_examples=1), truth=batch))
    assert found.status is Status.DIVERGED
    assert found.loss > 0.5


def test_a_last_gradient_that_no_input_explains_is_no_evidence():
    model, batch = dense(classes=4), batch_of([2])
    update = shared(model, batch)
    huge = {name: value * 1e6 for name, value in update.tensors.items()}
    seen = observe(model, SharedUpdate("gradient", huge, num_examples=1), scenario="C", truth=batch)
    found = rgap().reconstruct(seen)
    assert found.status is Status.DIVERGED
    none = {name: value if name != "5.weight" else torch.zeros_like(value) for name, value in update.tensors.items()}
    nothing = rgap().reconstruct(observe(model, SharedUpdate("gradient", none), scenario="C", truth=batch))
    assert nothing.status is Status.DIVERGED
    assert any("explains" in note for note in nothing.notes)


class Residual(nn.Module):
    """Adds the input of a layer to its output."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(36, 36, bias=False), nn.Linear(36, 4, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        flat = inputs.flatten(1)
        return self.outer(flat + self.inner(flat))


class Functional(nn.Module):
    """A chain written with functions and a reshape by computed size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(36, 24, bias=False), nn.Linear(24, 4, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        flat = inputs.view(inputs.size(0), -1)
        return self.last(functional.leaky_relu(self.first(torch.tanh(flat)), 0.3))


def test_functions_and_computed_reshapes_are_followed():
    batch = batch_of([2])
    found = attacked(Functional().double(), batch)
    assert error(found, batch) < 1e-9


def plain(*middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), *middle, nn.Flatten(), nn.LazyLinear(4)).double()


@pytest.mark.parametrize(
    ("middle", "match"),
    [
        (nn.ReLU(), r"ReLU\(\)\) cannot be undone"),
        (nn.LeakyReLU(0.0), "cannot be undone"),
        (nn.AvgPool2d(2), "AvgPool2d.* cannot be undone"),
        (nn.BatchNorm2d(4).eval(), "BatchNorm2d.* cannot be undone"),
        (nn.Conv2d(4, 4, 3, groups=2), "one group"),
        (nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"), "padded with a number of zeros"),
    ],
    ids=["relu", "leaky relu of slope 0", "pooling", "batch norm", "groups", "circular"],
)
def test_layers_that_cannot_be_undone_are_refused_by_name(middle, match):
    model, batch = plain(middle), batch_of([1])
    model(batch.inputs)
    with pytest.raises(UnsuitableError, match=match):
        attacked(model, batch)


def test_other_networks_and_updates_are_refused_before_compute():
    batch = batch_of([1])
    with pytest.raises(UnsuitableError, match="residual or a branch"):
        attacked(Residual().double(), batch)
    tied = nn.Linear(36, 36, bias=False)
    with pytest.raises(UnsuitableError, match="shares its weights"):
        attacked(nn.Sequential(nn.Flatten(), tied, LEAKY, tied, nn.Linear(36, 4, bias=False)).double(), batch)
    with pytest.raises(UnsuitableError, match="ends with '1' and an activation"):
        attacked(nn.Sequential(nn.Flatten(), nn.Linear(36, 4, bias=False), nn.Tanh()).double(), batch)
    with pytest.raises(UnsuitableError, match="got 2 behind the update"):
        attacked(dense(classes=4), batch_of([1, 2]))
    model = dense(classes=4)
    part = {name: value for name, value in shared(model, batch).tensors.items() if not name.startswith("3")}
    with pytest.raises(UnsuitableError, match=r"'3'.weight was not shared"):
        rgap().reconstruct(observe(model, SharedUpdate("gradient", part), truth=batch))
    with pytest.raises(UnsuitableError, match="more than 6000 unknowns"):
        rank_report(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 126**2, 2)), (3, 128, 128))


def test_the_logistic_loss_takes_whole_and_real_targets_in_either_shape():
    logits = torch.tensor([[0.3], [-1.2]])
    expected = functional.binary_cross_entropy_with_logits(logits[:, 0], torch.tensor([1.0, 0.0]))
    for targets in (torch.tensor([1, 0]), torch.tensor([1.0, 0.0]), torch.tensor([[1.0], [0.0]])):
        torch.testing.assert_close(logistic_loss(logits, targets), expected)
    assert isinstance(share(dense(classes=1), batch_of([1]), loss=logistic_loss), SharedUpdate)
