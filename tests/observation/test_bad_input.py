"""Updates that are not what they are said to be: an error where that is certain, else a note."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope import audit, networks
from leakscope.defence import ClientHooks, Defence
from leakscope.errors import BadInputError, UnsuitableError
from leakscope.matching.labels.rules import row_minimum
from leakscope.observation.consistency import ANOTHER_MODEL, CHANGED, REVERSED, TOO_LARGE, TOO_MANY
from leakscope.observation.observe import observe
from leakscope.registry import get_attack, get_defence
from leakscope.tensors import scale
from leakscope.types import Batch, LocalTraining, SharedUpdate
from tiny import batch_of, convolutional, dense, shared

SHAPE = (1, 6, 6)
ONE_STEP = LocalTraining(lr=0.01, steps=1, batch_size=9)


def notes_of(
    update: SharedUpdate, *, scenario: str = "C", model: nn.Module | None = None, **options
) -> tuple[str, ...]:
    """Notes on an update of the small dense network with eight classes."""
    network = dense(classes=8) if model is None else model
    return observe(network, update, scenario=scenario, input_shape=SHAPE, **options).notes


def gradient_of(labels: list[int], **options) -> SharedUpdate:
    return shared(dense(classes=8), batch_of(labels), **options)


# Errors: what cannot be, or cannot be used.


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda t: {"1.wieght": t["1.weight"]},
            r"'1.wieght' is not a parameter of the model\. Did you mean '1.weight'",
        ),
        (lambda t: {"1.weight": t["1.weight"].T}, r"has shape \[36, 24\].*comes from another model"),
        (lambda t: {"1.bias": t["1.bias"] / 0}, "holds NaN or Inf"),
        (lambda t: {"1.bias": t["1.bias"].float()}, r"torch.float32 on cpu.*torch.float64 on cpu"),
    ],
    ids=["misnamed", "transposed", "not finite", "dtype"],
)
def test_tensors_that_do_not_fit_are_named(change, match):
    with pytest.raises(BadInputError, match=match):
        notes_of(SharedUpdate("gradient", change(gradient_of([1]).tensors)))


def test_an_update_of_zeros_is_refused_before_its_grey_image_looks_like_protection():
    zeros = SharedUpdate("gradient", scale(gradient_of([1]).tensors, 0.0))
    with pytest.raises(
        UnsuitableError, match=r"every tensor of the update is zero: nothing can be learnt.*learning rate"
    ):
        notes_of(zeros)


@dataclass(frozen=True)
class Nothing(Defence):
    """A defence that shares zeros."""

    name: str = "nothing"
    paper: str = "none"

    def hooks(self):
        return ClientHooks(update=lambda update, rng: replace(update, tensors=scale(update.tensors, 0.0)))

    def adapt(self, attack):
        return attack


def test_a_defence_that_leaves_nothing_is_refused_as_well():
    with pytest.raises(UnsuitableError, match="what its defence left over"):
        audit(dense(), batch_of([1]), "idlg", defence=Nothing())


def test_two_names_of_one_parameter_are_explained():
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 36), nn.Sigmoid(), nn.Linear(36, 36), nn.Linear(36, 4)).double()
    model[3].weight = model[1].weight
    update = shared(model, batch_of([1]))
    assert "3.weight" not in update.tensors
    twice = replace(update, tensors={**update.tensors, "3.weight": update.tensors["1.weight"]})
    with pytest.raises(BadInputError, match=r"'3.weight' is a second name.*give it once.*check_update"):
        observe(model, twice, input_shape=SHAPE)


@pytest.mark.parametrize(
    ("targets", "match"),
    [
        (torch.tensor([8]), r"targets must lie in 0…7 for this model, got 8…8"),
        (torch.tensor([-1]), r"got -1…-1; map the labels"),
        (torch.tensor([1], dtype=torch.int32), r"int64 of shape \[n\], got torch.int32"),
        (torch.tensor([[1]]), r"of shape \[1, 1\]"),
        (torch.tensor(1), r"of shape \[\]"),
        (torch.full((1, 5), 0.2), r"soft targets need shape \[n, 8\], got \[1, 5\]"),
        (torch.tensor([1, 2]), r"2 targets were given for an update of 1 examples"),
    ],
)
def test_targets_that_cannot_be_are_refused(targets, match):
    with pytest.raises(BadInputError, match=match):
        notes_of(gradient_of([1]), scenario="B", targets=targets)


def test_targets_of_the_truth_are_checked_too():
    update = gradient_of([1])
    with pytest.raises(BadInputError, match=r"targets must lie in 0…7"):
        observe(dense(classes=8), update, truth=Batch(batch_of([1]).inputs, torch.tensor([9])))


def test_another_loss_may_have_other_targets():
    model, targets = dense(classes=8), torch.zeros(1, 8, dtype=torch.float64)
    batch = Batch(batch_of([1]).inputs, targets)
    update = shared(model, batch, loss=functional.mse_loss)
    assert notes_of(update, scenario="B", targets=targets, loss=functional.mse_loss) == ()


def test_more_examples_than_classes_are_refused_where_labels_must_differ():
    seen = observe(dense(), shared(dense(), batch_of([0, 1, 2, 3, 1])), input_shape=SHAPE)
    with pytest.raises(UnsuitableError, match=r"5 examples need 5 classes, the model has 4; use label counting"):
        row_minimum(seen, 5)


# Notes: what an undefended update cannot look like.


@pytest.mark.parametrize("labels", [[1], [1, 5], [3, 3, 0], list(range(8)), [6] * 12], ids=len)
@pytest.mark.parametrize("local", [None, ONE_STEP, LocalTraining(lr=0.5, steps=4, batch_size=1)], ids=["g", "d1", "d4"])
@pytest.mark.parametrize("scenario", ["A", "C", "D", "E"])
def test_an_honest_update_raises_no_suspicion(labels, local, scenario):
    batch = batch_of(labels)
    for model in (dense(classes=8), convolutional(classes=8, norm=True).train()):
        assert observe(model, shared(model, batch, local=local), scenario=scenario, truth=batch).notes == ()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_raises_no_suspicion(dtype):
    model, batch = dense(classes=8, dtype=dtype), batch_of([1], dtype=dtype)
    notes = observe(model, shared(model, batch), truth=batch).notes
    assert not set(notes) & {CHANGED, ANOTHER_MODEL, TOO_MANY, TOO_LARGE}
    rounded = {name: value.to(dtype).double() for name, value in gradient_of([1]).tensors.items()}
    assert notes_of(SharedUpdate("gradient", rounded, num_examples=1)) == ()


def test_a_confident_model_raises_no_suspicion():
    model, batch = dense(classes=8, dtype=torch.float32), batch_of([1], dtype=torch.float32)
    with torch.no_grad():
        model.get_parameter("3.bias")[1] = 14.0
    update = shared(model, batch)
    assert float(update.tensors["3.bias"].abs().max()) < 1e-4
    assert observe(model, update, truth=batch).notes == ()


@pytest.mark.parametrize("labels", [[1], [1, 5], [2, 4, 4]], ids=len)
def test_a_delta_declared_as_gradient_is_suspected_and_the_reverse(labels):
    delta, gradient = gradient_of(labels, local=ONE_STEP), gradient_of(labels)
    as_gradient = SharedUpdate("gradient", delta.tensors, num_examples=len(labels))
    as_delta = SharedUpdate("delta", gradient.tensors, num_examples=len(labels), local=ONE_STEP)
    assert notes_of(as_gradient) == (REVERSED.format(kind="gradient", other="delta"),)
    assert notes_of(as_delta) == (REVERSED.format(kind="delta", other="gradient"),)


def test_one_example_shows_its_sign_even_where_its_number_is_unknown():
    delta = gradient_of([1], local=ONE_STEP)
    assert notes_of(SharedUpdate("gradient", delta.tensors), scenario="E") == (
        REVERSED.format(kind="gradient", other="delta"),
    )


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_gradient_of_one_example_from_another_model_is_suspected(seed):
    update = shared(dense(classes=8, seed=seed), batch_of([1]))
    assert notes_of(update) == notes_of(update, scenario="E") == (ANOTHER_MODEL,)


def test_a_gradient_from_an_earlier_round_is_suspected():
    model, batch = dense(classes=8), batch_of([1])
    update, step = shared(model, batch), shared(model, batch_of([2, 5]), local=LocalTraining(lr=1.0, batch_size=2))
    with torch.no_grad():
        for name, value in model.named_parameters():
            value += step.tensors[name]
    assert notes_of(update, model=model) == (ANOTHER_MODEL,)


def test_a_sum_instead_of_a_mean_and_a_wrong_number_of_examples_are_suspected():
    update = gradient_of([1, 2, 3, 5])
    assert notes_of(replace(update, tensors=scale(update.tensors, 4.0))) == (TOO_LARGE,)
    assert notes_of(replace(update, num_examples=2)) == (TOO_MANY,)
    assert notes_of(replace(update, num_examples=2), scenario="E") == ()


def test_another_loss_than_declared_is_suspected():
    batch = batch_of([1])
    one_hot = functional.one_hot(batch.targets, 8).double()
    update = shared(dense(classes=8), Batch(batch.inputs, one_hot), loss=functional.mse_loss)
    assert notes_of(update) == (CHANGED,)
    assert notes_of(update, loss=functional.mse_loss) == ()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("gaussian-noise", {"sigma": 0.3}, (CHANGED,)),
        ("prune", {"fraction": 0.9}, (CHANGED,)),
        ("clip", {"norm": 1e-3}, ()),
    ],
)
def test_defended_updates_are_never_refused(name, options, expected, bias):
    model, batch = dense(classes=8, bias=bias), batch_of([1])
    update = shared(model, batch, defence=get_defence(name, **options))
    seen = observe(model, update, truth=batch)
    assert seen.notes == expected
    found = get_attack("inverting-gradients", steps=2).reconstruct(seen)
    assert found.notes[: len(expected)] == expected


def test_missing_tensors_are_noted():
    update = gradient_of([1])
    part = replace(update, tensors={"3.weight": update.tensors["3.weight"]})
    (note,) = notes_of(part)
    assert note == "3 of 4 trained parameters were not shared (1.weight, 1.bias, 3.bias)"


class TwoHeads(nn.Module):
    """The layer that computes the logits is used twice, so its gradient bears no mark."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(36, 36).double()

    def forward(self, images):
        return self.head(self.head(images.flatten(1)).sigmoid())


class Scaled(TwoHeads):
    """No linear layer's output is the model's."""

    def forward(self, images):
        return 2 * self.head(images.flatten(1))


@pytest.mark.parametrize("make", [TwoHeads, Scaled])
def test_nothing_is_said_where_nothing_can_be_checked(make):
    model = make()
    assert networks.find_head(model, torch.rand(2, *SHAPE, dtype=torch.float64)) is None
    foreign = shared(make(), batch_of([1]))
    assert notes_of(foreign, model=model) == ()


def test_the_head_is_found_by_what_it_computes_not_by_where_it_stands():
    model = nn.ModuleDict({"late": nn.Linear(36, 4), "early": nn.Linear(4, 4)})
    model.forward = lambda images: model["late"](images.flatten(1))
    assert networks.find_head(model, torch.rand(2, *SHAPE)) is model["late"]
    assert not any(module._forward_hooks for module in model.modules())
