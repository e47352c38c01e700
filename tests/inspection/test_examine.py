"""All detectors together: contracts, public names, bad input."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

import leakscope as ls
from inspection.made import bias_of, convolving, pictures, rectified, weight_of
from leakscope.errors import BadInputError, UsageError
from leakscope.inspection import DETECTORS, Finding, calibration, check_tensors, examine, fingerprint, receive
from leakscope.inspection.finding import Measured, Severity


def fished() -> nn.Sequential:
    network = convolving()
    with torch.no_grad():
        weight_of(network, -1).zero_()[0] = 0.5
        bias_of(network, -1).fill_(1000.0)[0] = 0.0
    return network


@pytest.mark.parametrize("network", [rectified(), convolving(), convolving().double(), rectified().half()])
def test_an_honest_network_is_clean_and_stays_as_it_was(network):
    before, mode = copy.deepcopy(network.state_dict()), network.training
    assert ls.inspect(network, reference=network, batch=pictures(), previous=network) == []
    assert fingerprint(network.state_dict()) == fingerprint(before)
    assert network.training is mode
    assert all(value.grad is None for value in network.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


def test_findings_say_what_where_how_much_and_what_to_do():
    batch = pictures()
    one_of_class_0 = ls.Batch(batch.inputs, torch.where(torch.arange(32) == 7, 0, 1 + torch.arange(32) % 3))
    found = ls.inspect(fished(), batch=one_of_class_0, previous=convolving())
    names = {one.detector for one in found}
    assert {"zeros", "head", "gradient-dominance", "round-change"} <= names
    assert [one.severity for one in found] == sorted((one.severity for one in found), key=lambda one: one != "critical")
    for one in found:
        assert isinstance(one, Finding)
        assert one.worst.value > one.limit
        assert len(one.meaning) > 40
        assert one.advice
        assert one.detector in str(one)


def test_an_inspection_holds_everything_for_the_page():
    result = examine(fished(), batch=pictures())
    assert result.skipped.keys() == {"architecture", "round-change", "same-for-all"}
    assert set(result.measured) | set(result.skipped) == {one.name for one in DETECTORS}
    assert any("SEER" in line for line in result.not_detected)
    assert result.suspicion > 1e4
    assert examine(convolving()).suspicion < 1


def test_every_figure_has_a_limit_that_was_stored():
    received = receive(convolving(), reference=convolving(), batch=pictures(), previous=rectified(), hashes=["0"])
    for detector in DETECTORS:
        measured = detector.measure(received)
        assert measured
        for one in measured:
            assert detector.thresholds[one.figure] >= 0
            json.dumps(one.value, allow_nan=False)
    stored = calibration()["limits"]
    assert set(stored) == {one.name for one in DETECTORS}


def test_a_limit_may_be_given_and_is_not_itself_a_finding():
    detector = type(DETECTORS[2])({"share": 0.25})
    assert detector.thresholds["empty_lines"] == DETECTORS[2].thresholds["empty_lines"]
    assert detector.judge([Measured("share", 0.25)]) == []
    (found,) = detector.judge([Measured("share", 0.3, "a"), Measured("share", 0.4, "b")])
    assert ([one.tensor for one in found.evidence], found.severity) == (["b", "a"], Severity.CRITICAL)


def test_tensors_alone_are_enough():
    network = fished()
    found = check_tensors(network.state_dict(), convolving())
    assert {one.detector for one in found} == {"zeros", "head"}
    assert check_tensors(convolving().state_dict(), convolving().state_dict()) == []
    wider = check_tensors(rectified(hidden=128).state_dict(), rectified())
    assert "architecture" in {one.detector for one in wider}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(bad):
    network = rectified()
    with torch.no_grad():
        weight_of(network, 3)[2, 2] = bad
    with pytest.raises(BadInputError, match=r"3\.weight.*NaN or Inf"):
        ls.inspect(network)


def test_other_bad_input_is_named():
    with pytest.raises(BadInputError, match="no tensors"):
        ls.inspect({})
    with pytest.raises(UsageError, match="share of zeros"):
        ls.inspect(rectified(), pruned=1.0)
    with pytest.raises(BadInputError, match=r"does not run on examples of shape \[1, 5, 5\]"):
        ls.inspect(rectified(), batch=ls.Batch(torch.rand(16, 1, 5, 5), torch.zeros(16, dtype=torch.long)))


def test_embeddings_and_buffers_are_no_layers():
    network = nn.Sequential(nn.Embedding(30, 12), nn.Flatten(), nn.Linear(48, 4))
    network.register_buffer("table", torch.zeros(20, 20))
    assert [layer.name for layer in receive(network).layers] == ["2.weight"]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_have_their_biases(kind):
    layers = receive(kind(6, 8)).layers
    assert [layer.name for layer in layers] == ["weight_ih_l0", "weight_hh_l0"]
    assert all(layer.bias is not None for layer in layers)


def test_a_figure_that_is_no_number_is_a_finding():
    assert [Measured("share", value).value for value in (float("nan"), float("inf"), -float("inf"))] == [1e6, 1e6, -1e6]
    assert DETECTORS[2].judge([Measured("share", float("nan"))])
    network = rectified()
    with torch.no_grad():
        for value in network.parameters():
            value.mul_(1e12)
    found = examine(network, batch=pictures(), previous=rectified())
    assert {"gradient-dominance", "round-change"} <= {one.detector for one in found.findings}


def test_layers_that_are_held_fixed_are_looked_at_too():
    network = fished()
    network.requires_grad_(False)
    batch = pictures()
    targets = torch.where(torch.arange(32) == 7, 0, 1 + torch.arange(32) % 3)
    found = ls.inspect(network, batch=ls.Batch(batch.inputs, targets))
    assert "gradient-dominance" in {one.detector for one in found}
    assert not any(value.requires_grad for value in network.parameters())
