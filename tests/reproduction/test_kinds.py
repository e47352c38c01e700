"""The three kinds of cells do what an audit, a training and a function do, and their keys know what they read."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import leakscope as ls
from leakscope import data
from leakscope.errors import BadInputError, UsageError
from leakscope.reproduction import CallValues, attack_cell, call_cell, keys, network, training, training_cell
from leakscope.reproduction.find import find_recipes
from leakscope.reproduction.keys import seal_cell
from leakscope.reproduction.networks import build_network, keep_networks
from leakscope.reproduction.results import CellResult
from leakscope.reproduction.work import execute_cell
from leakscope.types import LocalTraining

# So that `reproductions` can be imported by name, as a worker does.
find_recipes(Path(__file__).resolve().parents[2])
SMALL = network("mlp", seed=3, hidden=[16])
LOCAL = LocalTraining(lr=0.5, epochs=2, batch_size=16, shuffle=True)


def attack(**options):
    usual = {"model": SMALL, "data": "digits", "indices": [[5], [9]], "attack": "fc-inversion"}
    return attack_cell({"a": 1}, **{**usual, **options})


def run(cell):
    return execute_cell(seal_cell(cell).spec)


def measure(*, model, factor, data, indices):
    batch = ls.data.load(data, indices=indices[0])
    return CallValues({"pixels": float(batch.inputs.sum()) * factor, "list": [1.0, float("nan")]})


def test_an_attack_cell_is_a_cell_of_an_audit():
    outcome = run(attack(legacy="psnr_unclamped", pictures=1))
    model = ls.models.build("mlp", num_classes=10, in_channels=1, image_size=8, hidden=[16], seed=3)
    batches = [data.load("digits", indices=[place]) for place in (5, 9)]
    known = ls.audit(model, batches, "fc-inversion", scenario="C", seed=0)
    assert outcome.record["values"]["psnr"] == [[value] for value in known.scores.psnr.tolist()]
    assert outcome.record["values"]["psnr_unclamped"][0][0] == pytest.approx(outcome.record["values"]["psnr"][0][0])
    assert torch.equal(outcome.tensors["truth"], batches[0].inputs)
    assert len(outcome.tensors["reconstruction"]) == 1
    assert run(attack()).tensors == {}


def test_time_is_of_the_processor_not_of_the_clock():
    outcome = run(attack())
    assert 0 < outcome.measured["processor_seconds"] < 60
    assert CellResult(attack(), replace(outcome, seconds=1e6)).units("seconds") == [
        outcome.measured["processor_seconds"]
    ]
    # A worker that was killed or timed out leaves the clock's.
    assert CellResult(attack(), replace(outcome, seconds=7.0, measured={})).seconds == 7.0


def test_a_training_cell_trains_and_central_is_one_place():
    plan = {"rounds": 2, "local": LOCAL, "clients": 3, "examples": 200, "test_examples": 100, "partition": "by-class"}
    found = run(training_cell({}, model=SMALL, how=training("digits", **plan))).record["values"]
    assert len(found["accuracies"]) == 2
    assert found["tested"] == 100
    assert len(found["weights"]) == 3
    central = run(training_cell({}, model=SMALL, how=training("digits", central=True, **plan))).record["values"]
    assert len(central["weights"]) == 1
    # Clients that hold other classes learn less than one who holds all.
    assert central["accuracy"] > found["accuracy"] + 0.1


def test_two_sets_are_two_clients_and_others_may_be_tested_on():
    how = training(["digits", "digits"], rounds=1, local=LOCAL, examples=60, test_examples=20)
    assert run(training_cell({}, model=SMALL, how=how)).record["values"]["tested"] == 40
    how = training("digits", rounds=1, local=LOCAL, examples=60, test_examples=30, test_data="digits")
    assert run(training_cell({}, model=SMALL, how=how)).record["values"]["tested"] == 30
    with pytest.raises(UsageError, match="no setting 'roundz'"):
        seal_cell(training_cell({}, model=SMALL, how={**how, "roundz": 3}))


def test_a_trained_network_is_trained_once_and_kept(tmp_path):
    batch = data.load("digits", count=100, seed=0)
    trained = network(
        "mlp", seed=3, hidden=[16], trained=training("digits", rounds=3, local=LOCAL, examples=400, test_examples=50)
    )
    with keep_networks(tmp_path):
        model = build_network(trained, "digits", batch)
    plain = build_network(SMALL, "digits", batch)
    right = [float((one(batch.inputs).argmax(1) == batch.targets).float().mean()) for one in (model, plain)]
    assert right[0] > right[1] + 0.3
    (kept,) = tmp_path.glob("*.safetensors")
    with keep_networks(tmp_path):
        again = build_network(trained, "digits", batch)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
    # Half a file is trained again.
    kept.write_bytes(kept.read_bytes()[:100])
    with keep_networks(tmp_path):
        build_network(trained, "digits", batch)
    assert kept.stat().st_size > 100


def test_a_function_brings_back_numbers_and_nothing_else(monkeypatch):
    home = importlib.import_module("reproductions.networks")
    monkeypatch.setattr(home, "measure", measure, raising=False)
    cell = call_cell(
        {},
        "reproductions.networks:measure",
        reads=[{"name": "digits"}],
        model=SMALL,
        factor=2,
        data="digits",
        indices=[[1]],
    )
    assert cell.victims == [[1]]
    values = run(cell).record["values"]
    assert values["pixels"] == pytest.approx(2 * float(data.load("digits", indices=[1]).inputs.sum()))
    assert values["list"] == [1.0, None]
    monkeypatch.setattr(home, "measure", lambda **_: 3.0)
    with pytest.raises(UsageError, match="must return"):
        run(cell)


def test_keys_follow_data_settings_and_networks(monkeypatch):
    key = seal_cell(attack()).key
    for other in ({"indices": [[5], [10]]}, {"seed": 1}, {"model": network("mlp", seed=4, hidden=[16])}):
        assert seal_cell(attack(**other)).key != key
    # Tags and expectations are not the work.
    assert seal_cell(attack(expected={"error": "so it is"})).key == key
    spec = seal_cell(attack()).spec
    load = data.load

    def darker(name, **options):
        batch = load(name, **options)
        return ls.Batch(batch.inputs * 0.5, batch.targets)

    monkeypatch.setattr(data, "load", darker)
    # A worker is another process: it has hashed nothing yet.
    keys._hash_examples.cache_clear()
    with pytest.raises(BadInputError, match="data that a recipe reads"):
        execute_cell(spec)
    keys._hash_examples.cache_clear()
