"""Tasks: what they take for an output, what counts as right, and what they compute."""

from __future__ import annotations

import itertools
import math
import pickle
from collections import OrderedDict
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import leakscope
from leakscope.errors import BadInputError
from leakscope.tasks import Binary, Classification, CTCText, Tabular

LOGITS = torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0]])
TASKS = [Classification(), Binary(), CTCText(), Tabular(), Tabular(predicts="numbers")]


@dataclass
class Output:
    """As libraries of language and vision models return it."""

    logits: Tensor
    hidden_states: Tensor | None = None


def wrapped(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels)


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_tasks_are_values(task):
    assert pickle.loads(pickle.dumps(task)) == task == replace(task)
    with pytest.raises((FrozenInstanceError, AttributeError)):
        task.name = "other"


def test_tasks_are_reached_from_the_package():
    assert leakscope.tasks.Classification is Classification


@pytest.mark.parametrize("wrap", [Output, lambda z: {"logits": z, "loss": 1.0}, lambda z: OrderedDict(logits=z)])
def test_logits_are_unwrapped_wherever_an_output_is_taken(wrap):
    task, labels = Classification(), torch.tensor([0, 2])
    assert torch.equal(task.check_output(wrap(LOGITS)), LOGITS)
    assert task.outputs(wrap(LOGITS)) == 3
    assert task.decode(wrap(LOGITS)).tolist() == [0, 1]
    assert task.count_correct(wrap(LOGITS), labels) == 1
    assert torch.equal(task.loss(wrap(LOGITS), labels), functional.cross_entropy(LOGITS, labels))


@pytest.mark.parametrize("output", [(LOGITS, LOGITS), {"scores": LOGITS}, LOGITS[0], Output(LOGITS[None])])
def test_what_is_not_logits_is_refused(output):
    with pytest.raises(BadInputError, match=r"one tensor of logits \[n, classes\], got a"):
        Classification().check_output(output)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (functional.cross_entropy, True),
        (nn.CrossEntropyLoss(), True),
        (nn.CrossEntropyLoss(reduction="sum"), False),
        (nn.CrossEntropyLoss(label_smoothing=0.1), False),
        (nn.CrossEntropyLoss(weight=torch.ones(3)), False),
        (nn.MSELoss(), False),
        (wrapped, False),
    ],
)
def test_only_plain_mean_cross_entropy_is_recognised_by_itself(loss, expected):
    assert Classification(loss=loss).is_cross_entropy is expected
    assert Classification(loss=loss, cross_entropy=True).is_cross_entropy
    assert not Classification(loss=loss, cross_entropy=False).is_cross_entropy


def test_labels_are_checked_where_the_loss_is_a_cross_entropy_of_any_kind():
    outside = torch.tensor([0, 3])
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    for task in (Classification(), Classification(loss=smooth), Classification(loss=wrapped, cross_entropy=True)):
        task.check_targets(torch.tensor([0, 2]), 3)
        with pytest.raises(BadInputError, match="targets must lie in 0…2"):
            task.check_targets(outside, 3)
    Classification(loss=nn.MSELoss()).check_targets(outside, 3)


def test_doubts_are_raised_by_a_loss_that_nobody_knows():
    (doubt,) = Classification(loss=wrapped).doubts(3)
    assert "the loss (wrapped) is not known to be cross-entropy" in doubt
    assert "task=Classification(loss=…, cross_entropy=True)" in doubt
    for known in (Classification(), Classification(loss=nn.MSELoss()), Classification(loss=functional.mse_loss)):
        assert known.doubts(3) == ()
    assert Classification(loss=wrapped, cross_entropy=False).doubts(3) == ()
    assert Classification(loss=wrapped).doubts(1) == ()


def test_soft_targets_count_by_their_likeliest_class():
    soft = torch.tensor([[0.6, 0.4, 0.0], [0.5, 0.2, 0.3]])
    assert Classification().count_correct(LOGITS, soft) == 1


def test_one_logit_is_a_sign():
    logits, labels = torch.tensor([[0.5], [-2.0], [3.0]]), torch.tensor([1, 0, 0])
    for task in (Binary(), Classification(loss=nn.BCEWithLogitsLoss())):
        assert task.decode(logits).tolist() == [1, 0, 1]
        assert task.count_correct(logits, labels) == 2
    expected = -(math.log(torch.sigmoid(torch.tensor(0.5))) + math.log(torch.sigmoid(torch.tensor(2.0)))) / 2
    assert float(Binary().loss(logits[:2], labels[:2])) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(BadInputError, match="one output, got 3"):
        Binary().check_output(LOGITS)
    with pytest.raises(BadInputError, match="label from 0 to 1"):
        Binary().check_targets(torch.tensor([0, 2]), 1)


def test_tables_have_classes_or_numbers():
    numbers = Tabular(predicts="numbers", tolerance=0.5)
    targets = torch.tensor([[2.4, 0.0, 1.0], [0.0, 3.0, 1.6]])
    assert numbers.count_correct(LOGITS, targets) == 1
    assert float(numbers.loss(LOGITS, targets)) == pytest.approx((0.4**2 + 0.6**2) / 6)
    assert not numbers.is_cross_entropy
    assert Tabular().is_cross_entropy
    assert Tabular().count_correct(LOGITS, torch.tensor([0, 1])) == 2
    # One number an example may come without an axis of its own: no silent outer difference.
    assert float(numbers.loss(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 3.0]))) == 0
    with pytest.raises(BadInputError, match=r"\[n, features\]"):
        Tabular().check_input_shape((3, 8, 8))
    with pytest.raises(BadInputError, match="3 floating-point numbers"):
        numbers.check_targets(torch.tensor([0, 1]), 3)
    assert Tabular.bounds is None


def spelled(*steps: int, classes: int = 4) -> Tensor:
    """Scores [T, 1, classes] whose likeliest class at every step is the given one."""
    return 5.0 * functional.one_hot(torch.tensor(steps), classes).float()[:, None]


@pytest.mark.parametrize(
    ("steps", "text"),
    [((1, 1, 0, 2), [1, 2]), ((1, 0, 1, 1), [1, 1]), ((0, 0, 0), []), ((3, 2, 1), [3, 2, 1]), ((0, 2, 2, 0, 0), [2])],
)
def test_greedy_decoding_drops_repeats_and_blanks(steps, text):
    filled = text + [0] * (len(steps) - len(text))
    assert CTCText().decode(spelled(*steps)).tolist() == [filled]
    assert CTCText(time_first=False).decode(spelled(*steps).transpose(0, 1)).tolist() == [filled]


def test_another_blank_and_another_padding():
    task = CTCText(blank=3, padding=-1)
    assert task.decode(spelled(0, 0, 3, 0, 1)).tolist() == [[0, 0, 1, -1, -1]]
    task.check_targets(torch.tensor([[0, 1, -1]]), 4)
    for wrong in ([[0, 3, -1]], [[0, -1, 1]], [[-1, -1, -1]], [[0, 4, -1]]):
        with pytest.raises(BadInputError):
            task.check_targets(torch.tensor(wrong), 4)


def test_a_text_counts_when_all_of_it_is_right():
    output = torch.cat([spelled(1, 1, 0, 2), spelled(1, 0, 2, 3)], 1)
    assert CTCText().count_correct(output, torch.tensor([[1, 2], [1, 2]])) == 1
    assert CTCText().count_correct(output, torch.tensor([[1, 2, 0, 0, 0, 0], [1, 2, 3, 0, 0, 0]])) == 2


def test_the_loss_sums_over_all_alignments():
    """−log Σ p(path) over every path of 4 steps that spells the text, by brute force; mean over length and examples."""
    output = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))
    texts = [[1], [2, 1]]
    odds = output.softmax(2)
    losses = []
    for example, text in enumerate(texts):
        total = 0.0
        for path in itertools.product(range(3), repeat=4):
            said = [symbol for place, symbol in enumerate(path) if symbol and (place == 0 or path[place - 1] != symbol)]
            if said == text:
                total += math.prod(float(odds[step, example, symbol]) for step, symbol in enumerate(path))
        losses.append(-math.log(total) / len(text))
    targets = torch.tensor([[1, 0], [2, 1]])
    assert float(CTCText().loss(output, targets)) == pytest.approx(sum(losses) / 2, rel=1e-5)
    assert float(CTCText(time_first=False).loss(output.transpose(0, 1), targets)) == pytest.approx(sum(losses) / 2)
    with pytest.raises(BadInputError, match=r"scores \[T, n, classes\], got a tensor of shape \[2, 3\]"):
        CTCText().check_output(LOGITS)
