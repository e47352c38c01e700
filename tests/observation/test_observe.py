from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
import torch
from torch import nn

from leakscope.errors import BadInputError, KnowledgeError, UsageError
from leakscope.networks import freeze
from leakscope.observation.observe import observe
from leakscope.observation.scenario import SCENARIOS, check_needs, get_scenario
from leakscope.registry import get_attack
from leakscope.types import Knowledge, LocalTraining, SealedUpdate, SharedUpdate
from tiny import batch_of, convolutional, dense, seen_of, shared

LOCAL = LocalTraining(lr=0.1, steps=2, batch_size=2)


def test_each_rung_grants_strictly_less_than_the_one_above():
    rungs = [SCENARIOS[letter].grants for letter in "ABCDE"]
    assert all(low < high for high, low in pairwise(rungs))
    assert rungs[0] == frozenset(Knowledge)
    assert rungs[-1] == frozenset()
    assert all(s.grants | s.withholds == frozenset(Knowledge) for s in SCENARIOS.values())


def test_an_unknown_scenario_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"unknown scenario 'Z'.*A, B, C, D, E"):
        get_scenario("Z")


@pytest.mark.parametrize("letter", list("ABCDE"))
def test_a_field_is_filled_exactly_when_it_is_granted(letter):
    model, batch = convolutional(norm=True).eval(), batch_of([3, 0, 2])
    seen = seen_of(model, batch, scenario=letter, local=LOCAL)
    grants = SCENARIOS[letter].grants
    assert (seen.num_examples == 3) is (Knowledge.BATCH_SIZE in grants)
    assert (seen.targets is not None) is (Knowledge.LABELS in grants)
    assert (seen.local == LOCAL) is (Knowledge.LEARNING_RATE in grants)
    assert (seen.batch_statistics is not None) is (letter == "A")
    assert (seen.update.local is not None) is (letter in "ABC")
    assert (seen.update.num_examples is not None) is (letter in "ABCD")


def test_b_knows_which_labels_but_not_in_which_order():
    batch = batch_of([3, 0, 2, 0])
    assert seen_of(dense(), batch, scenario="B").targets.tolist() == [0, 0, 2, 3]
    assert seen_of(dense(), batch, scenario="A").targets.tolist() == [3, 0, 2, 0]


@pytest.mark.parametrize("letter", list("ABCDE"))
def test_the_private_inputs_cannot_be_reached_from_an_observation(letter):
    batch = batch_of([1, 2])
    model = convolutional(norm=True).eval()
    seen = seen_of(model, batch, scenario=letter)
    private = batch.inputs.flatten()
    for tensor in _tensors_below(seen):
        assert tensor.untyped_storage().data_ptr() != batch.inputs.untyped_storage().data_ptr()
        assert tensor.numel() != private.numel() or not torch.equal(tensor.flatten(), private)


def _tensors_below(value):
    """Every tensor reachable through fields, attributes, containers and hooks."""
    pending, known = [value], set()
    while pending:
        item = pending.pop()
        if id(item) in known:
            continue
        known.add(id(item))
        if isinstance(item, torch.Tensor):
            yield item
            pending.append(item.grad)
        elif isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, (tuple, list, set, frozenset)):
            pending.extend(item)
        elif callable(item) and getattr(item, "__closure__", None):
            pending.extend(cell.cell_contents for cell in item.__closure__ or ())
        elif isinstance(item, nn.Module) or dataclasses.is_dataclass(item):
            pending.append(vars(item))


def test_exact_batch_statistics_are_those_of_the_private_batch():
    model, batch = convolutional(norm=True).eval(), batch_of([1, 2])
    seen = seen_of(model, batch, scenario="A")
    received = model[0](batch.inputs).detach()
    torch.testing.assert_close(seen.batch_statistics["1.mean"], received.mean((0, 2, 3)))
    torch.testing.assert_close(seen.batch_statistics["1.var"], received.var((0, 2, 3), unbiased=False))
    assert not any(module._forward_pre_hooks for module in seen.model.modules())


class Counting(nn.Module):
    """Counts forward passes."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x)


@pytest.mark.parametrize("name", ["lbfgs-l2", "adam-cosine", "sgd-cosine"])
def test_an_attack_that_needs_labels_is_refused_before_any_forward_pass(name):
    seen = seen_of(Counting(dense()), batch_of([1]), scenario="C")
    seen.model.calls = 0
    with pytest.raises(KnowledgeError, match=r"needs the labels.*which scenario 'C'.*use scenario A or B"):
        get_attack(name).reconstruct(seen)
    assert seen.model.calls == 0


def test_needs_that_are_granted_pass():
    check_needs("x", {Knowledge.BATCH_SIZE}, seen_of(dense(), batch_of([1]), scenario="D"))
    with pytest.raises(KnowledgeError, match="A or B or C"):
        check_needs("x", {Knowledge.LEARNING_RATE}, seen_of(dense(), batch_of([1]), scenario="D"))


def test_the_observed_model_is_a_private_copy():
    model = dense()
    seen = seen_of(model, batch_of([1]))
    with torch.no_grad():
        model.get_parameter("1.weight").zero_()
    assert seen.model.get_parameter("1.weight").abs().sum() > 0


def test_active_dropout_is_switched_off_with_a_note_and_the_mode_kept():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, 4)).train()
    frozen, notes = freeze(model)
    assert frozen.training
    assert not frozen.get_submodule("1").training
    assert model[1].training
    assert len(notes) == 1
    assert "dropout '1' was active" in notes[0]
    assert freeze(model.eval())[1] == ()


def test_without_truth_the_update_fills_what_is_granted_and_labels_must_be_given():
    update = shared(dense(), batch_of([1, 2]), local=LOCAL)
    seen = observe(dense(), update, scenario="C", input_shape=(1, 6, 6))
    assert (seen.num_examples, seen.local, seen.num_classes) == (2, LOCAL, 4)
    with pytest.raises(UsageError, match="'B' grants the labels, so they must be given"):
        observe(dense(), update, scenario="B", input_shape=(1, 6, 6))
    given = observe(dense(), update, scenario="B", input_shape=(1, 6, 6), targets=torch.tensor([2, 1]))
    assert given.targets.tolist() == [1, 2]
    with pytest.raises(UsageError, match="needs input_shape="):
        observe(dense(), update, scenario="C")


def test_a_sealed_update_cannot_be_observed():
    with pytest.raises(UsageError, match=r"sealed \(ckks\)"):
        observe(dense(), SealedUpdate("ckks", bytes(3)), input_shape=(1, 6, 6))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(36, 4).double()

    def forward(self, x):
        return self.layer(x.flatten(1)), x


def test_a_model_that_returns_a_tuple_is_named_with_its_remedy():
    update = SharedUpdate("gradient", {"layer.bias": torch.zeros(4).double()})
    with pytest.raises(BadInputError, match=r"one tensor of logits.*got a tuple; wrap it"):
        observe(Pair(), update, input_shape=(1, 6, 6), scenario="E")
    with pytest.raises(BadInputError, match=r"got a tensor of shape \[2, 1, 6, 6\]"):
        observe(nn.Identity(), update, input_shape=(1, 6, 6), scenario="E")


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        ({"1.wieght": torch.zeros(24, 36).double()}, "'1.wieght' is not a parameter.*mean '1.weight'"),
        ({"1.weight": torch.zeros(36, 24).double()}, r"shape \[36, 24\], the model's parameter has \[24, 36\]"),
        ({"1.bias": torch.full((24,), torch.nan).double()}, "'1.bias' holds NaN or Inf"),
        ({"1.bias": torch.zeros(24).half()}, r"is torch.float16 on cpu.*torch.float64 on cpu; convert"),
        ({"1.bias": torch.zeros(24, dtype=torch.long)}, r"is torch.int64 on cpu"),
    ],
)
def test_an_update_of_another_model_is_refused(tensors, match):
    with pytest.raises(BadInputError, match=match):
        observe(dense(), SharedUpdate("gradient", tensors), scenario="E", input_shape=(1, 6, 6))


def test_an_update_of_a_frozen_parameter_is_refused_with_the_remedy():
    model = dense()
    update = shared(model, batch_of([1]))
    with pytest.raises(BadInputError, match=r"gets no gradient; call requires_grad_\(True\)"):
        observe(model.requires_grad_(False), update, scenario="E", input_shape=(1, 6, 6))


def test_an_input_shape_the_model_does_not_take_is_refused():
    update = shared(dense(), batch_of([1]))
    with pytest.raises(BadInputError, match=r"does not accept inputs of shape \[2, 3, 6, 6\].*pass the input_shape"):
        observe(dense(), update, scenario="E", input_shape=(3, 6, 6))
