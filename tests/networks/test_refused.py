"""Networks no gradient attack can work on: refused with the reason, before anything is computed."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope import models
from leakscope.client import second_derivative, share
from leakscope.errors import BadInputError, UnsuitableError, UsageError
from leakscope.observation.observe import observe
from leakscope.registry import get_attack
from leakscope.types import Batch, SharedUpdate
from tiny import batch_of, dense, shared

SHAPE = (1, 6, 6)


class Squeezed(nn.Module):
    """Batch normalisation on one value a channel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(1, 6, 6), nn.BatchNorm2d(6), nn.Linear(6, 4)

    def forward(self, images):
        return self.last(self.norm(self.conv(images)).flatten(1))


def test_one_example_of_one_value_cannot_be_normalised_by_its_own_statistics():
    model, batch = Squeezed().double().train(), batch_of([1])
    with pytest.raises(UnsuitableError, match=r"training mode cannot normalise 1 example.*two examples or more"):
        share(model, batch)
    update = SharedUpdate("gradient", shared(model, batch_of([1, 2])).tensors, num_examples=1)
    seen = observe(model, update, input_shape=SHAPE)
    for attack in ("idlg", "dlg", "inverting-gradients"):
        with pytest.raises(UnsuitableError, match="or put the model in evaluation mode"):
            get_attack(attack).reconstruct(seen)
    assert shared(model.eval(), batch).num_examples == 1


def test_a_lazy_module_must_see_an_example_first():
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(4)).double()
    with pytest.raises(BadInputError, match=r"'1.weight' has no shape yet.*run one example through the model first"):
        share(model, batch_of([1]))
    with pytest.raises(BadInputError, match="has no shape yet"):
        observe(model, shared(dense(), batch_of([1])), input_shape=SHAPE)
    assert isinstance(model[1], nn.LazyLinear)


def test_quantised_weights_get_no_gradient():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.ao.quantization.quantize_dynamic(dense(dtype=torch.float32), {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(BadInputError, match=r"layer '1' is quantised.*audit the floating-point model"):
        share(model, batch_of([1], dtype=torch.float32))
    with pytest.raises(BadInputError, match="is quantised"):
        observe(model, shared(dense(), batch_of([1])), input_shape=SHAPE)


class WholeNumbers(nn.Module):
    """A frozen table of whole numbers stands in front of the layer that trains."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.arange(36), requires_grad=False)
        self.last = nn.Linear(36, 4).double()

    def forward(self, images):
        return self.last(images.flatten(1) * self.table)


def test_whole_number_parameters_are_no_obstacle_where_others_train():
    model, batch = WholeNumbers(), batch_of([1])
    update = shared(model, batch)
    assert list(update.tensors) == ["last.weight", "last.bias"]
    found = get_attack("idlg", steps=5, retries=0).reconstruct(observe(model, update, truth=batch))
    assert found.targets.tolist() == [1]
    update = SharedUpdate("gradient", {**update.tensors, "table": torch.zeros(36, dtype=torch.long)})
    with pytest.raises(BadInputError, match="'table' belongs to a parameter that gets no gradient"):
        observe(model, update, truth=batch)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(20, 6), nn.Linear(6, 4)

    def forward(self, tokens):
        return self.last(self.embedding(tokens).mean(1))


class Looked(Tokens):
    """Tokens that no embedding layer receives."""

    def forward(self, tokens):
        return self.last(nn.functional.embedding(tokens, self.embedding.weight).mean(1))


def test_tokens_without_an_embedding_layer_are_refused_with_the_way_round_them():
    model = Looked()
    batch = Batch(torch.tensor([[3, 7, 11, 2]]), torch.tensor([1]))
    update = shared(model, batch)
    for options in ({"truth": batch}, {"input_shape": (4,)}):
        with pytest.raises(UnsuitableError, match=r"takes whole numbers \(tokens\).*behind the embedding"):
            observe(model, update, **options)


def test_tokens_are_seen_where_an_embedding_receives_them():
    model = Tokens()
    batch = Batch(torch.tensor([[3, 7, 11, 2]]), torch.tensor([1]))
    for options in ({"truth": batch}, {"input_shape": (4,)}):
        assert observe(model, shared(model, batch), **options).vocabulary == 20


class NoHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 5, 3), nn.Sigmoid(), nn.Conv2d(5, 4, 4))

    def forward(self, images):
        return self.layers(images).flatten(1)


@pytest.mark.parametrize("attack", ["idlg", "inverting-gradients"])
def test_labels_cannot_be_read_where_no_linear_layer_makes_them(attack):
    model, batch = NoHead().double(), batch_of([1])
    seen = observe(model, shared(model, batch), truth=batch)
    with pytest.raises(UnsuitableError, match=r"no shared linear layer with 4 outputs.*optimises labels \(dlg\)"):
        get_attack(attack).reconstruct(seen)


def test_a_missing_second_derivative_is_named():
    rows = batch_of([1]).inputs.float().requires_grad_()
    # Outside a replay the fused kernel runs, which has one derivative only.
    (first,) = torch.autograd.grad(
        functional.scaled_dot_product_attention(rows, rows, rows).square().sum(), rows, create_graph=True
    )
    with (
        pytest.raises(UnsuitableError, match=r"no second derivative \(.*dot_product.*closed form"),
        second_derivative(),
    ):
        torch.autograd.grad(first.sum(), rows)
    with pytest.raises(RuntimeError, match="another"), second_derivative():
        raise RuntimeError("another failure")


def test_a_declared_number_of_classes_must_be_the_models():
    update = shared(dense(), batch_of([1]))
    with pytest.raises(BadInputError, match=r"num_classes=7 was declared, the model returns 4 logits"):
        observe(dense(), update, input_shape=SHAPE, num_classes=7)


def test_a_recurrent_network_has_no_activation_to_choose():
    with pytest.raises(UsageError, match="'lstm' has no activation to choose, got activation='relu'"):
        models.build("lstm", activation="relu")
