from __future__ import annotations

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ArrayRecord

from flower_messages import (
    answer,
    client_that_adds,
    context_of,
    random_change,
    sent_tensors,
    state_of,
    training_message,
)
from flower_network import LOCAL, examples, network
from leakscope.errors import UsageError
from leakscope.federated import flower
from tiny import shared


def trains(message, context):
    """The app's own training: what leakscope's client would do."""
    before = dict(message.content.array_records["arrays"].to_torch_state_dict())
    model = network()
    model.load_state_dict(before)
    change = shared(model, examples(0), local=LOCAL).tensors
    return answer(
        message, ArrayRecord({name: value + change.get(name, 0) for name, value in before.items()}), examples=1
    )


def gate(threshold, **options):
    told = {"attack": "fc-inversion", "model": network, "data": lambda context: examples(0), "local": LOCAL} | options
    return flower.gate_mod(threshold, **told)


def message():
    return training_message(ArrayRecord(state_of(network())))


def test_an_update_that_gives_a_picture_away_is_kept_back_with_the_reason_and_no_arrays():
    reply = gate(20.0)(message(), context_of(), trains)
    assert reply.has_error()
    assert not reply.has_content()
    assert "fc-inversion rebuilds an example at" in reply.error.reason
    assert "above 20 dB" in reply.error.reason


def test_an_update_below_the_threshold_goes_out_as_it_is():
    sent = sent_tensors(gate(200.0)(message(), context_of(), trains))
    assert torch.equal(sent["1.weight"], sent_tensors(trains(message(), context_of()))["1.weight"])


def test_the_gate_sees_what_a_mod_behind_it_leaves():
    noise = flower.defence_mod("gaussian-noise:sigma=1.0", seed=0)

    def defended(message, context):
        return noise(message, context, trains)

    reply = gate(20.0, inconclusive="send")(message(), context_of(), defended)
    assert reply.has_content(), reply.error.reason


def test_no_evidence_is_a_refusal_unless_told_otherwise():
    """An update of something else than the declared examples: the attack explains it, the truth does not come back."""
    change = random_change(network(), scale=0.01)
    refused = gate(20.0, attack="inverting-gradients:steps=20")(message(), context_of(), client_that_adds(change))
    assert refused.has_error()
    assert "no evidence" in refused.error.reason
    sent = gate(20.0, attack="inverting-gradients:steps=20", inconclusive="send")
    assert sent(message(), context_of(), client_that_adds(change)).has_content()


def test_an_attack_that_takes_too_long_is_no_evidence():
    slow = gate(20.0, attack="inverting-gradients:steps=100000", seconds=0.2)
    reply = slow(message(), context_of(), trains)
    assert reply.has_error()
    assert "no result within 0.2 s" in reply.error.reason


def test_the_attacker_who_knows_the_defence_is_run_as_well():
    mod = gate(20.0, attack="inverting-gradients", defence="prune:fraction=0.9")
    assert len(mod.attacks) == 2
    assert len(gate(20.0).attacks) == 1


def test_what_cannot_be_measured_is_not_sent():
    def renames(message, context):
        return answer(message, ArrayRecord({"w": torch.zeros(1)}))

    reply = gate(20.0)(message(), context_of(), renames)
    assert reply.has_error()
    assert "cannot measure" in reply.error.reason


def test_evaluation_passes():
    asked = training_message(ArrayRecord(state_of(network())), kind="evaluate")
    assert gate(0.0)(asked, context_of(), client_that_adds({})).has_content()


@pytest.mark.parametrize("options", [{"threshold": float("nan")}, {"seconds": 0}, {"inconclusive": "maybe"}])
def test_wrong_options_are_refused(options):
    with pytest.raises(UsageError):
        gate(options.pop("threshold", 20.0), **options)
