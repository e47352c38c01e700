"""Batch statistics from the buffers that a client sends: exact for one step, a weighted mean for several."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from leakscope.client import share
from leakscope.files import load_update, save_update
from leakscope.matching.penalties.network import target_statistics
from leakscope.networks import batch_statistics
from leakscope.observation import observe
from leakscope.observation.sent_buffers import read_sent_statistics
from leakscope.types import Batch, LocalTraining, SharedUpdate
from tiny import batch_of

SHAPE = (1, 6, 6)
LAYERS = ("1", "5")


def network(*, momentum: float | None = 0.3, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = [nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3, momentum=momentum), nn.Sigmoid(), nn.Flatten()]
        model = nn.Sequential(*first, nn.Linear(108, 5), nn.BatchNorm1d(5, momentum=momentum), nn.Linear(5, 4))
        model(torch.rand(7, *SHAPE))
        return model.to(dtype).train()


def batch(count: int = 6) -> Batch:
    return batch_of([index % 4 for index in range(count)], shape=SHAPE)


def sent(model: nn.Module, data: Batch, **options) -> SharedUpdate:
    update = share(model, data, seed=1, sends_buffers=True, **options)
    assert isinstance(update, SharedUpdate)
    return update


@pytest.mark.parametrize("momentum", [0.3, 1.0, None], ids=str)
@pytest.mark.parametrize("local", [None, LocalTraining(lr=0.1, steps=1, batch_size=6)], ids=["gradient", "delta"])
def test_one_step_gives_them_exactly(momentum, local):
    model, data = network(momentum=momentum), batch()
    found = read_sent_statistics(model, sent(model, data, local=local), SHAPE)
    expected = batch_statistics(model, data.inputs)
    assert found.steps == 1
    assert found.notes[0].endswith("exact for one step")
    assert (
        found.tensors.keys() == expected.keys() == {f"{layer}.{part}" for layer in LAYERS for part in ("mean", "var")}
    )
    for name, value in expected.items():
        torch.testing.assert_close(found.tensors[name], value, rtol=1e-10, atol=1e-12)


def test_the_client_sends_what_torch_would_keep():
    model, data = network(), batch()
    local = LocalTraining(lr=0.1, steps=3, batch_size=2)
    update, trained = sent(model, data, local=local), copy.deepcopy(model)
    for rows in local.order(6):
        trained.zero_grad()
        functional.cross_entropy(trained(data.inputs[list(rows)]), data.targets[list(rows)]).backward()
        with torch.no_grad():
            for parameter in trained.parameters():
                parameter -= 0.1 * parameter.grad
    after = dict(trained.named_buffers())
    assert update.buffers.keys() == after.keys()
    for name, value in after.items():
        torch.testing.assert_close(update.buffers[name], value, rtol=1e-10, atol=1e-12)
    silent = share(model, data, seed=1, local=local)
    assert isinstance(silent, SharedUpdate)
    assert not silent.buffers


@pytest.mark.parametrize("momentum", [0.3, None], ids=str)
def test_several_steps_give_a_mean_over_them(momentum):
    model, data = network(momentum=momentum), batch()
    update = sent(model, data, local=LocalTraining(lr=1e-9, steps=3, batch_size=2))
    found = read_sent_statistics(model, update, SHAPE)
    each = [batch_statistics(model, data.inputs[start : start + 2]) for start in (0, 2, 4)]
    weights = [1.0, 1.0, 1.0] if momentum is None else [(1 - momentum) ** (2 - step) for step in range(3)]
    assert found.steps == 3
    assert "approximate" in found.notes[0]
    for name, value in found.tensors.items():
        mean = sum(weight * one[name] for weight, one in zip(weights, each, strict=True)) / sum(weights)
        torch.testing.assert_close(value, mean, rtol=1e-6, atol=1e-8)


def test_several_steps_at_a_usual_rate_stay_close_to_the_whole_batch():
    model, data = network(), batch(24)
    update = sent(model, data, local=LocalTraining(lr=0.01, steps=3, batch_size=8))
    found, exact = read_sent_statistics(model, update, SHAPE).tensors, batch_statistics(model, data.inputs)
    kept = {name: dict(model.named_buffers())[name.replace(".", ".running_")] for name in exact}
    for name, value in exact.items():
        # Stated bound: a quarter of the statistic; what the network kept before is further away.
        assert float((found[name] - value).norm()) < 0.25 * float(value.norm()), name
        assert float((found[name] - value).norm()) < float((kept[name] - value).norm()), name


def test_without_a_counter_steps_are_those_declared_or_nothing_is_said():
    model, data = network(), batch()
    update = sent(model, data, local=LocalTraining(lr=1e-9, steps=2, batch_size=3))
    whole = read_sent_statistics(model, update, SHAPE)
    bare = {name: value for name, value in update.buffers.items() if not name.endswith("num_batches_tracked")}
    declared = read_sent_statistics(model, replace(update, buffers=bare), SHAPE)
    assert declared.steps == 2
    assert all(torch.equal(declared.tensors[name], value) for name, value in whole.tensors.items())
    assert not read_sent_statistics(model, replace(update, buffers=bare, local=None), SHAPE).tensors


def test_without_the_number_of_examples_variances_stay_unbiased():
    model, data = network(), batch()
    update = sent(model, data)
    known, unknown = (read_sent_statistics(model, one, SHAPE) for one in (update, replace(update, num_examples=None)))
    torch.testing.assert_close(unknown.tensors["5.var"], known.tensors["5.var"] * 6 / 5)
    torch.testing.assert_close(unknown.tensors["1.var"], known.tensors["1.var"] * 216 / 215)
    assert "unbiased" in unknown.notes[0]


def test_buffers_of_another_model_and_of_evaluation_mode_say_nothing():
    model, data = network(), batch()
    update = sent(model, data)
    wrong = {name: value - 5 if name.endswith("running_var") else value for name, value in update.buffers.items()}
    assert not read_sent_statistics(model, replace(update, buffers=wrong), SHAPE).tensors
    still = network().eval()
    assert not read_sent_statistics(still, sent(still, data), SHAPE).tensors


@pytest.mark.parametrize("scenario", ["B", "C", "D", "E"])
def test_every_scenario_sees_what_was_sent_and_nothing_of_the_truth(scenario, tmp_path):
    model, data = network(), batch()
    update = load_update(save_update(tmp_path / "update.safetensors", sent(model, data)))
    other = Batch(data.inputs.flip(-1) * 0.5, data.targets)
    found, again = (observe(model, update, scenario=scenario, truth=truth) for truth in (data, other))
    assert found.batch_statistics is not None
    assert again.batch_statistics is not None
    assert all(
        torch.equal(found.batch_statistics[name], again.batch_statistics[name]) for name in again.batch_statistics
    )
    assert any("buffers that the client sent" in note for note in found.notes)
    wanted = target_statistics(model, found)
    assert all(torch.equal(wanted[layer][0], found.batch_statistics[f"{layer}.mean"]) for layer in LAYERS)


def test_an_update_without_buffers_is_as_before():
    model, data = network(), batch()
    update = share(model, data, seed=1)
    seen = observe(model, update, scenario="C", truth=data)
    assert seen.batch_statistics is None
    assert not any("statistics" in note for note in seen.notes)
    assert torch.equal(target_statistics(model, seen)["1"][0], model[1].running_mean)
    granted = observe(model, sent(model, data), scenario="A", truth=data)
    torch.testing.assert_close(granted.batch_statistics["1.var"], batch_statistics(model, data.inputs)["1.var"])
    assert not any("buffers" in note for note in granted.notes)


def test_public_inputs_stand_in_where_nothing_was_sent_and_are_declared():
    model, data = network(), batch()
    public = batch_of([0] * 5, seed=9, shape=SHAPE).inputs
    seen = observe(model, share(model, data, seed=1), scenario="C", truth=data, proxy=public)
    expected = batch_statistics(model, public)
    assert all(torch.equal(seen.batch_statistics[name], value) for name, value in expected.items())
    assert any("5 public inputs" in note for note in seen.notes)
    better = observe(model, sent(model, data), scenario="C", truth=data, proxy=public)
    assert not torch.allclose(better.batch_statistics["1.mean"], expected["1.mean"])


def test_layers_whose_buffers_were_not_sent_keep_their_running_statistics():
    model, data = network(), batch()
    update = sent(model, data)
    some = {name: value for name, value in update.buffers.items() if name.startswith("1.")}
    seen = observe(model, replace(update, buffers=some), scenario="C", truth=data)
    wanted = target_statistics(model, seen)
    assert torch.equal(wanted["5"][0], model[5].running_mean)
    assert not torch.equal(wanted["1"][0], model[1].running_mean)
