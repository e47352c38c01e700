"""Detectors that compare with what was agreed, and with what other clients got."""

from __future__ import annotations

import torch
from torch import nn

from inspection.made import convolving, rectified, value
from leakscope.inspection import fingerprint, receive, structure_hash
from leakscope.inspection.architecture import AgreedArchitecture
from leakscope.inspection.fingerprint import SameForAll
from leakscope.inspection.fully_connected import FullyConnectedLayers


def details(received) -> dict[str, str]:
    return {one.tensor: one.detail for found in AgreedArchitecture().look(received) for one in found.evidence}


class TestArchitecture:
    def test_the_same_network_with_other_weights_is_the_same(self):
        assert AgreedArchitecture().look(receive(rectified(), reference=rectified(seed=1))) == []

    def test_every_kind_of_difference_is_named(self):
        agreed = rectified().state_dict()
        changed = {"1.weight": torch.zeros(64, 36), "3.bias": agreed["3.bias"].half(), "extra.weight": torch.ones(3)}
        sent = {**agreed, **changed}
        del sent["5.bias"]
        assert details(receive(sent, reference=agreed)) == {
            "1.weight": "expected shape [32, 36], got [64, 36]",
            "3.bias": "expected torch.float32, got torch.float16",
            "5.bias": "missing",
            "extra.weight": "not in the agreed network",
        }

    def test_a_layer_without_weights_counts(self):
        sent = rectified()
        sent[2] = nn.Sigmoid()
        assert details(receive(sent, reference=rectified())) == {"2": "expected ReLU(), got Sigmoid()"}

    def test_the_counter_of_batches_does_not(self):
        agreed = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).state_dict()
        sent = {name: value for name, value in agreed.items() if "tracked" not in name}
        assert details(receive(sent, reference=agreed)) == {}

    def test_without_an_agreement_it_does_not_look(self):
        assert AgreedArchitecture().lacks(receive(rectified()))


class TestFullyConnected:
    def test_a_layer_before_the_first_convolution_is_found_unless_it_was_agreed(self):
        sent = nn.Sequential(nn.Flatten(), nn.Linear(36, 36), nn.Unflatten(1, (1, 6, 6)), convolving())
        (found,) = FullyConnectedLayers().look(receive(sent))
        assert (found.figure, found.worst.tensor) == ("before_convolution", "1.weight")
        assert FullyConnectedLayers().look(receive(sent, reference=sent)) == []
        assert FullyConnectedLayers().look(receive(convolving())) == []
        assert FullyConnectedLayers().look(receive(rectified())) == []

    def test_widths_are_compared_with_what_was_agreed(self):
        sent = rectified(hidden=128)
        assert value(FullyConnectedLayers(), receive(sent, reference=rectified()), "width") == 4.0
        (found,) = FullyConnectedLayers().look(receive(sent, reference=rectified()))
        assert found.worst.tensor == "1.weight"
        # A layer of another name is compared with the widest that was agreed.
        added = {**rectified().state_dict(), "new.weight": torch.randn(320, 36)}
        assert value(FullyConnectedLayers(), receive(added, reference=rectified()), "width") == 10.0

    def test_tensors_of_a_file_are_put_into_the_agreed_order(self):
        agreed = convolving()
        shuffled = dict(sorted(agreed.state_dict().items(), reverse=True))
        assert FullyConnectedLayers().look(receive(shuffled, reference=agreed)) == []


class TestFingerprint:
    def test_it_changes_with_names_types_shapes_and_values_and_not_with_order(self):
        one, two = torch.arange(6.0), torch.ones(2)
        base = {"a": one, "b": two}
        assert fingerprint(base) == fingerprint({"b": two, "a": one.clone()})
        others = [
            {"a": one, "c": two},
            {"a": one.double(), "b": two},
            {"a": one.reshape(2, 3), "b": two},
            {"a": one + 1, "b": two},
            {"a": one},
        ]
        assert len({fingerprint(other) for other in (base, *others)}) == 6
        assert structure_hash(base) == structure_hash({"a": one + 1, "b": two})
        assert len({structure_hash(other) for other in (base, *others)}) == 5

    def test_parts_of_other_memory_and_empty_tensors_have_one_too(self):
        whole = torch.arange(12.0).reshape(3, 4)
        assert fingerprint({"a": whole.T}) == fingerprint({"a": whole.T.contiguous()})
        assert fingerprint({"a": torch.zeros(0)}) != fingerprint({"a": torch.zeros(0, 1)})

    def test_another_model_at_another_client_is_found(self):
        network = rectified()
        own = fingerprint(network.state_dict())
        assert SameForAll().look(receive(network, hashes=[own, f" {own.upper()} "])) == []
        (found,) = SameForAll().look(receive(network, hashes=[own, "ab" * 32]))
        assert (found.worst.value, found.worst.places) == (1.0, (1,))
        assert SameForAll().lacks(receive(network))
