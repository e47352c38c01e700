from __future__ import annotations

import pytest

from flower_network import LOCAL, examples, network
from leakscope.audits.own_update import measure_own_update
from leakscope.observation.observe import observe
from leakscope.registry import attack_from_spec
from leakscope.types import Status
from tiny import shared


@pytest.fixture(scope="module")
def seen():
    return observe(network(), shared(network(), examples(0), local=LOCAL), scenario="A", truth=examples(0))


def test_what_comes_back_is_scored_against_the_clients_own_examples(seen):
    found = measure_own_update(attack_from_spec("fc-inversion"), seen, examples(0), seconds=60)
    assert (found.attack, found.status, found.reason) == ("fc-inversion", Status.OK, "")
    assert (found.worst_psnr or 0) > 40
    assert (found.explained or 0) > 0.9
    other = measure_own_update(attack_from_spec("fc-inversion"), seen, examples(1), seconds=60)
    assert (other.worst_psnr or 99) < 20


def test_time_that_runs_out_is_no_evidence(seen):
    slow = attack_from_spec("inverting-gradients:steps=100000")
    found = measure_own_update(slow, seen, examples(0), seconds=0.05)
    assert (found.status, found.worst_psnr) == (Status.TIMEOUT, None)
    assert "0.05 s" in found.reason


def test_an_attack_that_cannot_run_is_a_refusal_with_its_reason(seen):
    found = measure_own_update(attack_from_spec("embedding-tokens"), seen, examples(0), seconds=60)
    assert found.status is Status.REFUSED
    assert found.reason
