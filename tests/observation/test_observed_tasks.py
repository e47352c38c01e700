"""What an observation makes of the task, of a loss of one's own, and of a model that remembers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.client import replay_gradient
from leakscope.defence import Hardened
from leakscope.errors import BadInputError
from leakscope.federated.evaluation import evaluate
from leakscope.federated.memory import ClientMemory
from leakscope.matching.labels import infer_labels
from leakscope.observation.consistency import REVERSED
from leakscope.observation.observe import observe
from leakscope.tasks import Classification, CTCText, OutputLoss, Tabular
from leakscope.tensors import scale
from leakscope.types import Batch, LocalTraining, SharedUpdate
from tiny import batch_of, convolutional, dense, shared


def own_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels)


DECLARED = Classification(loss=own_loss, cross_entropy=True)


def test_a_loss_of_ones_own_leaves_a_note_and_a_declared_one_does_not():
    model, batch = dense(), batch_of([2])
    update = shared(model, batch)
    silent = observe(model, update, truth=batch)
    unknown = observe(model, update, truth=batch, loss=own_loss)
    declared = observe(model, update, truth=batch, task=DECLARED)
    assert silent.notes == declared.notes == ()
    assert len(unknown.notes) == 1
    assert "cross_entropy=True" in unknown.notes[0]
    assert unknown.loss is declared.loss is own_loss
    assert silent.loss is functional.cross_entropy
    # Declaring the task and handing the loss over separately says the same.
    assert observe(model, update, truth=batch, task=Classification(cross_entropy=True), loss=own_loss).notes == ()


def test_a_declared_loss_has_its_labels_and_its_marks_checked():
    model, batch = dense(classes=4), batch_of([2])
    update = shared(model, batch)
    turned = SharedUpdate("gradient", scale(update.tensors, -1.0), num_examples=1)
    marks = (REVERSED.format(kind="gradient", other="delta"),)
    assert observe(model, turned, truth=batch).contradictions == marks
    assert observe(model, turned, truth=batch, task=DECLARED).contradictions == marks
    assert observe(model, turned, truth=batch, loss=own_loss).contradictions == ()
    outside = Batch(batch.inputs, torch.tensor([4]))
    with pytest.raises(BadInputError, match="targets must lie in 0…3"):
        observe(model, update, truth=outside, task=DECLARED)
    with pytest.raises(BadInputError, match="num_classes=7 was declared"):
        observe(model, update, truth=batch, task=DECLARED, num_classes=7)


def test_labels_are_inferred_under_a_declared_loss_as_under_the_plain_one():
    model, batch = dense(classes=6), batch_of([5, 1, 1])
    update = shared(model, batch)
    plain, declared = (infer_labels(observe(model, update, truth=batch, task=task)) for task in (None, DECLARED))
    assert torch.equal(plain.labels, declared.labels)
    assert torch.equal(plain.confidence, declared.confidence)


@dataclass
class Output:
    logits: Tensor
    attentions: None = None


class Wrapping(nn.Module):
    """Returns what a transformer of a library returns."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Output:
        return Output(self.inner(images))


def test_a_model_that_returns_an_object_is_seen_like_the_one_inside():
    inner, batch = dense(classes=5), batch_of([3])
    model = Wrapping(inner)
    update, plain = shared(model, batch), shared(inner, batch)
    for name, value in plain.tensors.items():
        assert torch.equal(update.tensors[f"inner.{name}"], value)
    seen = observe(model, update, truth=batch)
    assert (seen.num_classes, seen.notes) == (5, ())
    assert infer_labels(seen).labels.tolist() == [3]
    turned = SharedUpdate("gradient", scale(update.tensors, -1.0), num_examples=1)
    assert observe(model, turned, truth=batch).contradictions
    again = replay_gradient(
        seen.model, dict(seen.model.named_parameters()), batch.inputs, batch.targets, loss=seen.loss, create_graph=False
    )
    assert torch.equal(again["inner.1.weight"], update.tensors["inner.1.weight"])
    whole = [ClientMemory()]
    assert evaluate(model, batch, loss=functional.cross_entropy, task=Classification(), memories=whole)[0] in (0, 1)


class Remembers(nn.Module):
    """Keeps its last input, and every input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.BatchNorm2d(1), dense()
        self.last: Tensor | None = None
        self.all: list[Tensor] = []
        self.double()

    def forward(self, images: Tensor) -> Tensor:
        self.last = images
        self.all.append(images)
        return self.inner(self.norm(images))


def test_a_model_that_remembers_its_inputs_does_not_hand_the_truth_over():
    model, batch = Remembers().eval(), batch_of([1, 0])
    update = shared(Remembers().eval(), batch)
    seen = observe(model, update, scenario="A", truth=batch)
    torch.testing.assert_close(seen.batch_statistics["norm.mean"], batch.inputs.mean((0, 2, 3)))
    assert isinstance(seen.model, Remembers)
    assert seen.model.all
    assert not any(torch.equal(one, batch.inputs) for one in (seen.model.last, *seen.model.all))
    assert model.last is None
    assert model.all == []


def test_what_the_client_keeps_is_not_observed():
    server, batch = dense(), batch_of([2])
    client = nn.Sequential(dense(seed=3), nn.Linear(4, 4).double())
    update = shared(server, batch)
    seen = observe(Hardened(client, server, loss=own_loss), update, truth=batch)
    assert type(seen.model) is type(server)
    assert torch.equal(seen.model[1].weight, server[1].weight)
    assert seen.loss == OutputLoss(own_loss)
    assert observe(Hardened(client, server), update, truth=batch).loss is functional.cross_entropy


@pytest.mark.parametrize(("letter", "granted"), [("A", ((1, 0), (2,))), ("B", None), ("C", None), ("E", None)])
def test_the_order_of_local_steps_is_granted_with_the_order_of_labels(letter, granted):
    model, batch = dense(), batch_of([1, 0, 3])
    update = shared(model, batch, local=LocalTraining(lr=0.1, steps=2, batch_size=2))
    assert observe(model, update, scenario=letter, truth=batch, order=[[1, 0], [2]]).order == granted


class Reader(nn.Module):
    """Reads a picture column by column: scores [T, n, classes]."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = nn.Linear(6, 5).double()

    def forward(self, images: Tensor) -> Tensor:
        return self.columns(images[:, 0].permute(2, 0, 1))


def test_text_is_observed_with_its_words_whole_and_without_their_order():
    task, model = CTCText(), Reader()
    words = torch.tensor([[3, 1, 0], [1, 4, 2]])
    batch = Batch(batch_of([0, 0]).inputs, words)
    parameters = dict(model.named_parameters())
    tensors = {
        name: grad.detach()
        for (name, _), grad in zip(
            parameters.items(),
            torch.autograd.grad(task.loss(model(batch.inputs), words), list(parameters.values())),
            strict=True,
        )
    }
    update = SharedUpdate("gradient", tensors, num_examples=2)
    seen = observe(model, update, scenario="B", truth=batch, task=task)
    assert seen.num_classes == 5
    assert seen.task is task
    assert seen.targets.tolist() == [[1, 4, 2], [3, 1, 0]]
    assert observe(model, update, scenario="A", truth=batch, task=task).targets.tolist() == words.tolist()
    torch.testing.assert_close(seen.loss(model(batch.inputs), words), task.loss(model(batch.inputs), words))
    with pytest.raises(BadInputError, match="logits"):
        observe(model, update, truth=batch)


def test_rows_of_numbers_have_no_range():
    model = nn.Linear(7, 3).double()
    batch = Batch(torch.randn(2, 7).double() * 40, torch.tensor([0, 2]), bounds=None)
    update = shared(model, batch)
    assert observe(model, update, input_shape=(7,), task=Tabular()).bounds is None
    assert observe(model, update, input_shape=(7,)).bounds == (0.0, 1.0)
    with pytest.raises(BadInputError, match="features"):
        observe(convolutional(), shared(convolutional(), batch_of([1])), input_shape=(1, 6, 6), task=Tabular())
