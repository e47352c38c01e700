"""What a client draws afresh in every round: noise averages out for who knows it, a draw that is searched for does not.

Every defence of the registry that draws anything is named here, and every other must send the same update twice.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import leakscope as ls
from leakscope.attacks.agic import agic
from leakscope.attacks.idlg import idlg
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.attacks.policy_aware import policy_aware
from leakscope.audits.rounds import Federation, play
from leakscope.client import harden
from leakscope.defences.chain import chain
from leakscope.defences.dp_fedavg import dp_fedavg
from leakscope.defences.dp_sgd import dp_sgd
from leakscope.defences.fed_cdp import fed_cdp
from leakscope.defences.noise import gaussian_noise, laplacian_noise
from leakscope.defences.precode import precode
from leakscope.defences.prune import prune
from leakscope.defences.quantise import quantise
from leakscope.metrics import score
from leakscope.observation.scenario import get_scenario
from leakscope.registry import DEFENCES, defence_from_spec
from tiny import batch_of, convolutional, dense, flat, shared

JOINED = {
    "gaussian-noise": gaussian_noise(0.1),
    "gaussian-noise relative": gaussian_noise(0.1, relative=True),
    "laplacian-noise": laplacian_noise(0.1),
    "quantise": quantise(4),
    "dp-sgd": dp_sgd(1.0, 0.1),
    "fed-cdp": fed_cdp(1.0, 0.1),
    "dp-fedavg": dp_fedavg(1.0, 0.1),
}
# What they draw is searched for beside the pictures, and there is one of it in a search.
BY_THEMSELVES = {"precode": "precode:width=4", "transforms": "transforms:policy=3-1-7"}
PRIVATE = {"dp-sgd": dp_sgd, "fed-cdp": fed_cdp, "dp-fedavg": dp_fedavg}


def test_no_other_defence_draws_anything_for_an_update():
    fresh = {name.split()[0] for name in JOINED} | set(BY_THEMSELVES)
    # Its own randomness is that of encryption: nothing can be read of it at all.
    for name in sorted(DEFENCES.keys() - fresh - {"sealed"}):
        model, batch, defence = convolutional(), batch_of([1, 2]), defence_from_spec(name)
        network = harden(model, defence, seed=0)
        one, other = (flat(shared(network, batch, defence=defence, seed=seed).tensors) for seed in (1, 2))
        assert torch.equal(one, other), name
    for name, defence in JOINED.items():
        one, other = (flat(shared(dense(), batch_of([1]), defence=defence, seed=seed).tensors) for seed in (1, 2))
        assert not torch.equal(one, other), name


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.parametrize("attack", [idlg(), inverting_gradients()], ids=["idlg", "inverting-gradients"])
def test_who_knows_of_it_joins_rounds_also_where_it_is_part_of_a_chain(name, attack):
    assert not attack.joins_rounds
    assert JOINED[name].adapt(attack).joins_rounds
    assert chain(prune(0.5), JOINED[name]).adapt(attack).joins_rounds
    assert chain(JOINED[name], prune(0.5)).adapt(attack).joins_rounds
    for private in PRIVATE.values():
        # One that adds no noise must not part what another one has joined.
        assert chain(JOINED[name], private(1.0, 0.0)).adapt(attack).joins_rounds


@pytest.mark.parametrize("make", PRIVATE.values(), ids=PRIVATE)
def test_without_noise_nothing_is_joined(make):
    assert not make(1.0, 0.0).adapt(idlg()).joins_rounds
    assert not make(math.inf, 0.0).adapt(idlg()).joins_rounds
    assert not chain(prune(0.5), make(1.0, 0.0)).adapt(idlg()).joins_rounds


@pytest.mark.parametrize("make", PRIVATE.values(), ids=PRIVATE)
def test_private_noise_averages_out_over_rounds(make):
    defence, batch, attack = make(1.0, 0.01), batch_of([2]), idlg(steps=40, retries=0)
    reached = []
    for rounds in (1, 9):
        # A model that hardly moves: training would make the gradient smaller and the noise not.
        federation = Federation(dense(), (batch,), defence, None, get_scenario("A"), seed=3, rounds=rounds, rate=1e-3)
        (seen,) = play(federation, attack)[-1].seen
        found = defence.adapt(attack).reconstruct(seen, seed=2)
        assert defence.adapt(attack).evaluate(seen, found) == found.loss
        reached.append(float(score(found, batch).psnr))
    # Nine rounds leave a third of the noise: 9.5 dB.
    assert reached[0] + 13 > reached[1] > reached[0] + 6, reached


@pytest.mark.parametrize("spec", BY_THEMSELVES.values(), ids=BY_THEMSELVES)
def test_one_search_for_what_was_drawn_explains_one_round(spec):
    defence: Any = defence_from_spec(spec)
    for knowing in (defence, chain(defence, gaussian_noise(0.1)), chain(gaussian_noise(0.1), defence)):
        assert not knowing.adapt(inverting_gradients()).joins_rounds
        assert not knowing.adapt(agic()).joins_rounds
    tried: Any = gaussian_noise(0.1).adapt(policy_aware(policy="3-1-7"))
    assert (tried.joins_rounds, tried.search.joins_rounds) == (False, False)


@pytest.mark.slow
def test_an_audit_of_several_rounds_with_precode_takes_the_best_of_them():
    defence, attack = chain(precode(4), gaussian_noise(1e-4)), inverting_gradients(steps=60)
    found = ls.audit(
        dense(), batch_of([2]), attack, defence=defence, adaptive=True, scenario="A", rounds=3, prior_alone=False
    )
    assert len(found.scores) == 3
