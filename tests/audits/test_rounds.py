"""The audit as a loop over rounds: what the server does between them, and what an attack sees of them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch.nn.functional import cross_entropy

import leakscope as ls
from leakscope.attack import Attack, CraftContext, Crafted
from leakscope.attacks.agic import agic
from leakscope.attacks.fc_inversion import FCInversion, fc_inversion
from leakscope.audits.rounds import Federation, play
from leakscope.defence import Defence, Hardened
from leakscope.defences.top_k import top_k
from leakscope.errors import UnsuitableError, UsageError
from leakscope.observation.scenario import get_scenario
from leakscope.types import Reconstruction, Status
from tiny import batch_of, convolutional, dense, shared

LOCAL = ls.LocalTraining(lr=0.1, steps=2, batch_size=1)


def federation(*victims, local=None, rounds=2, rate=0.1):
    return Federation(dense(), victims, None, local, get_scenario("C"), seed=3, rounds=rounds, rate=rate)


def weights(seen):
    return {name: value.detach() for name, value in seen.model.named_parameters()}


def test_between_rounds_the_server_adds_the_mean_change():
    first, second = play(federation(batch_of([1]), batch_of([2], seed=1), local=LOCAL), fc_inversion())
    changes = [one.update.tensors for one in first.seen]
    for name, before in weights(first.seen[0]).items():
        expected = before + (changes[0][name] + changes[1][name]) / 2
        torch.testing.assert_close(weights(second.seen[0])[name], expected, rtol=0, atol=1e-12)


def test_between_rounds_the_server_steps_against_the_mean_gradient():
    first, second = play(federation(batch_of([1]), batch_of([2, 3], seed=1), rate=0.25), fc_inversion())
    gradients = [one.update.tensors for one in first.seen]
    for name, before in weights(first.seen[0]).items():
        # Clients count by their examples: one and two.
        expected = before - 0.25 * (gradients[0][name] + 2 * gradients[1][name]) / 3
        torch.testing.assert_close(weights(second.seen[0])[name], expected, rtol=0, atol=1e-12)


def test_the_callers_model_and_the_first_rounds_stay_as_they_were():
    model = dense()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = ls.audit(model, batch_of([1]), fc_inversion(), rounds=3)
    assert result.rounds == 3
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_an_attack_that_joins_nothing_attacks_every_round():
    result = ls.audit(dense(), [batch_of([1]), batch_of([2], seed=1)], fc_inversion(), rounds=2)
    assert len(result.scores) == 4
    assert result.scores.psnr.min() > 100
    assert torch.equal(result.truth[:2], result.truth[2:])


def test_agic_joins_the_rounds_of_a_client():
    model, batch = convolutional(), batch_of([1, 2])
    attack = agic(steps=20, pre_steps=10)
    alone = ls.audit(model, batch, attack, local=LOCAL)
    joint = ls.audit(model, batch, attack, local=LOCAL, rounds=2)
    assert len(joint.scores) == len(alone.scores) == 2
    assert joint.evaluations > alone.evaluations
    assert joint.loss != alone.loss


def test_what_a_client_holds_back_goes_into_its_next_round():
    victims = (batch_of([1]), batch_of([2], seed=1))
    played = play(replace(federation(*victims, rounds=3), defence=top_k(0.05)), fc_inversion())
    for place, victim in enumerate(victims):
        computed = [shared(one.seen[place].model, victim).tensors for one in played]
        sent = [one.seen[place].update.tensors for one in played]
        left = played[-1].runs[place].held_back
        for name, value in left.items():
            total = sum(each[name] for each in computed)
            torch.testing.assert_close(sum(each[name] for each in sent) + value, total, rtol=0, atol=1e-12)
        assert any(bool(value.abs().max() > 0) for value in left.values())


@dataclass(frozen=True)
class Keeper(Attack):
    """Hands out the agreed model with its secret, and writes down what it was shown."""

    shown: list = field(default_factory=list, compare=False)
    name: str = "keeper"
    paper: str = "none"
    is_malicious = True

    @property
    def rounds(self):
        return 3

    def _craft(self, model, context: CraftContext):
        self.shown.append((context.round, len(context.history), context.input_shape, context.num_classes))
        return Crafted(model, secret=f"round {context.round}")

    def evaluate(self, seen, reconstruction):
        return 0.0

    def _reconstruct(self, seen, seed, watch):
        self.shown.append((seen.secret, [one.secret for one in seen.earlier]))
        return Reconstruction(torch.full((1, *seen.input_shape), 0.5), None, 0.0, Status.OK, (0.0,))


def test_a_malicious_server_sees_history_and_keeps_a_secret_for_every_round():
    attack = Keeper()
    ls.audit(dense(), batch_of([1]), attack, prior_alone=False)
    shape = (1, 6, 6)
    assert attack.shown[:3] == [(0, 0, shape, 4), (1, 1, shape, 4), (2, 2, shape, 4)]
    assert attack.shown[3:] == [("round 2", ["round 0", "round 1"])]


def test_too_few_rounds_are_refused():
    with pytest.raises(UsageError, match="needs 3 rounds, got rounds=2"):
        ls.audit(dense(), batch_of([1]), Keeper(), rounds=2)


@dataclass(frozen=True)
class Inverts(FCInversion):
    """A malicious server that changes nothing: what it gets is what an honest one gets."""

    is_malicious = True

    def _craft(self, model, context):
        return Crafted(model)


def test_a_crafted_model_equal_to_the_agreed_one_gives_the_same_result():
    honest, crafted = (ls.audit(dense(), batch_of([2]), attack, seed=5) for attack in (fc_inversion(), Inverts()))
    assert torch.equal(honest.reconstruction, crafted.reconstruction)
    assert (honest.server, crafted.server) == ("honest", "malicious")


@dataclass(frozen=True)
class Widens(FCInversion):
    """Hands out another architecture."""

    is_malicious = True
    changes_architecture = True

    def _craft(self, model, context):
        return Crafted(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 4, dtype=torch.float64)))


def test_another_architecture_does_not_fit_a_defence_with_private_layers():
    from doubles.guarded import Guarded

    assert ls.audit(dense(), batch_of([2]), Widens()).scores.psnr.min() > 100
    with pytest.raises(UnsuitableError, match="keeps layers of the agreed one"):
        ls.audit(dense(), batch_of([2]), Widens(), defence=Guarded())


@dataclass(frozen=True)
class OtherLoss(Defence):
    """Trains the network as it is, with another loss."""

    name: str = "other-loss"
    paper: str = "none"

    def harden(self, model, *, seed=0):
        return Hardened(model, model, loss=lambda output, targets: 3 * cross_entropy(output, targets))

    def adapt(self, attack):
        return attack


@dataclass(frozen=True)
class OwnBias(Defence):
    """The client keeps a bias of its own under a name that the server knows."""

    name: str = "own-bias"
    paper: str = "none"

    def harden(self, model, *, seed=0):
        client = copy.deepcopy(model)
        with torch.no_grad():
            client[3].bias[0] += 1.0
        return Hardened(client, model, private=frozenset({"3.bias"}))

    def adapt(self, attack):
        return attack


@pytest.mark.parametrize("defence", [OtherLoss(), OwnBias()], ids=lambda defence: defence.name)
def test_clients_train_what_the_defence_hardened(defence):
    batch = batch_of([1])
    (only,) = play(replace(federation(batch, rounds=1), defence=defence), fc_inversion())
    hardened = shared(defence.harden(dense()), batch, defence=defence).tensors
    plain = shared(dense(), batch).tensors
    sent = only.seen[0].update.tensors
    assert sent.keys() == hardened.keys()
    for name, value in sent.items():
        assert torch.equal(value, hardened[name])
        assert not torch.allclose(value, plain[name])
