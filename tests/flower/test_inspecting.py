from __future__ import annotations

import sys
import types

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ArrayRecord

from flower_messages import client_that_adds, context_of, state_of, training_message
from flower_network import network
from inspection.made import rectified
from leakscope.errors import BadInputError, UsageError
from leakscope.federated import flower
from tiny import batch_of


def own_examples():
    return batch_of([place % 4 for place in range(32)], dtype=torch.float32)


def too_large(tensors):
    return [f"{name} is too large" for name, value in tensors.items() if float(value.abs().max()) > 10]


def test_a_model_with_findings_is_not_trained_on():
    weights = state_of(network())
    weights["1.weight"] = torch.full_like(weights["1.weight"], 100.0)
    weights["3.weight"] = torch.full_like(weights["3.weight"], 100.0)

    def never(message, context):
        raise AssertionError("the client must not train")

    for kind in ("train", "evaluate"):
        asked = training_message(ArrayRecord(weights), kind=kind)
        reply = flower.inspection_mod(too_large)(asked, context_of(), never)
        assert reply.has_error()
        assert "1.weight is too large (and 1 more)" in reply.error.reason


def test_a_clean_model_is_trained_on():
    asked = training_message(ArrayRecord(state_of(network())))
    assert flower.inspection_mod(too_large)(asked, context_of(), client_that_adds({})).has_content()


def test_a_check_that_cannot_read_the_model_refuses_it():
    def unreadable(tensors):
        raise BadInputError("no such network")

    asked = training_message(ArrayRecord(state_of(network())))
    reply = flower.inspection_mod(unreadable)(asked, context_of(), client_that_adds({}))
    assert "cannot be inspected: no such network" in reply.error.reason


def test_the_default_check_is_that_of_leakscope(monkeypatch):
    looked = []
    inspection = types.SimpleNamespace(
        check_tensors=lambda tensors, pruned: looked.append(set(tensors)) or [],
        inspect=lambda model, batch, pruned: looked.append(type(model)) or ["crafted"],
    )
    monkeypatch.setitem(sys.modules, "leakscope.inspection", inspection)
    asked = training_message(ArrayRecord(state_of(network())))
    assert flower.inspection_mod()(asked, context_of(), client_that_adds({})).has_content()
    assert flower.inspection_mod(model=network)(asked, context_of(), client_that_adds({})).has_error()
    assert looked == [set(state_of(network())), torch.nn.Sequential]


def test_own_examples_show_what_the_weights_do_not():
    silenced = state_of(rectified())
    silenced["1.bias"] = torch.full_like(silenced["1.bias"], -1000.0)
    asked = training_message(ArrayRecord(silenced))
    assert flower.inspection_mod(model=rectified)(asked, context_of(), client_that_adds({})).has_content()
    mod = flower.inspection_mod(model=rectified, examples=own_examples)
    assert "firing-rates" in mod(asked, context_of(), client_that_adds({})).error.reason
    honest = training_message(ArrayRecord(state_of(rectified())))
    assert mod(honest, context_of(), client_that_adds({})).has_content()


def test_agreed_pruning_is_not_a_finding():
    pruned = state_of(network())
    weight = pruned["1.weight"]
    pruned["1.weight"] = torch.where(weight.abs() > weight.abs().quantile(0.9), weight, 0.0)
    asked = training_message(ArrayRecord(pruned))
    for options in ({}, {"model": network}):
        assert flower.inspection_mod(**options)(asked, context_of(), client_that_adds({})).has_error()
        mod = flower.inspection_mod(pruned=0.9, **options)
        assert mod(asked, context_of(), client_that_adds({})).has_content()


def test_options_that_would_be_ignored_are_refused():
    with pytest.raises(UsageError, match="drop them"):
        flower.inspection_mod(too_large, model=network)
    with pytest.raises(UsageError, match="model="):
        flower.inspection_mod(examples=own_examples)


def test_without_an_inspection_a_check_must_be_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "leakscope.inspection", None)
    with pytest.raises(UsageError, match="check="):
        flower.inspection_mod()
