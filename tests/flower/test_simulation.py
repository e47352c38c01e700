"""The simulation engine itself: Ray starts processes, so these take minutes."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("flwr")
pytest.importorskip("ray")

from leakscope.errors import RoundFailedError
from leakscope.federated import flower, train_federated
from leakscope.registry import get_defence
from small_federation import blobs, clients, experiment, network

# What Ray warns about in its own code.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
TEST = blobs(30, seed=9)


def largest_difference(one, other):
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("as_mod", [False, True])
def test_five_rounds_on_ray_agree_with_those_in_process(as_mod, capsys):
    plan = experiment(rounds=5, defence=get_defence("top-k", share=0.3))
    here = train_federated(network(), clients(), TEST, plan)
    mods = [flower.defence_mod("top-k:share=0.3", seed=0, sends="change")] if as_mod else []
    trained_with = replace(plan, defence=None) if as_mod else plan
    there = flower.simulate(network(), clients(), TEST, trained_with, mods=mods)
    difference = largest_difference(here, there)
    with capsys.disabled():
        print(f"\nlargest difference of any weight after five rounds: {difference:.3g}")
    assert difference <= 1e-6
    assert there.accuracies == pytest.approx(here.accuracies)
    assert len(there.rounds) == 5


@pytest.mark.timeout(900)
def test_a_round_that_fails_says_so_through_the_engine():
    def breaks(message, context, call_next):
        if message.metadata.message_type == "train" and context.node_config["partition-id"] == 1:
            raise MemoryError("no memory left")
        return call_next(message, context)

    with pytest.raises(RoundFailedError, match=r"client 1: .*no memory left"):
        flower.simulate(network(), clients(), TEST, experiment(rounds=1), mods=[breaks])
