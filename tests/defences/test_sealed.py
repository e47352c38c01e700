from __future__ import annotations

import pytest
import torch
from sealing_keys import ckks_keys

import leakscope as ls
from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.attacks.idlg import idlg
from leakscope.client import run_client
from leakscope.defences import sealed as module
from leakscope.defences.chain import chain
from leakscope.defences.prune import prune
from leakscope.defences.sealed import Sealed, sealed
from leakscope.errors import BadInputError, UsageError
from leakscope.rng import generator
from leakscope.sealed import open_sealed
from leakscope.testing import check_defence
from leakscope.types import SealedUpdate, SharedUpdate
from tiny import batch_of, dense, shared

pytest.importorskip("tenseal")
pytest.importorskip("gmpy2")


@pytest.fixture(autouse=True)
def _known_key(monkeypatch):
    monkeypatch.setattr(module, "_public_key", lambda scheme, bound: ckks_keys().public)


def test_the_update_is_sealed_and_opens_to_what_the_client_computed():
    model, batch = dense(), batch_of([1, 2])
    sent = run_client(model, batch, defence=sealed()).update
    plain = shared(model, batch)
    assert isinstance(sent, SealedUpdate)
    assert (sent.kind, sent.num_examples) == ("gradient", 2)
    found = open_sealed(sent, ckks_keys())
    for name, value in plain.tensors.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-7)


def test_the_contract():
    check_defence(sealed())


def test_the_seed_does_not_decide_what_hides_the_update():
    update = SharedUpdate("gradient", {"a": torch.ones(2)})
    hook = sealed().hooks().update
    assert hook is not None
    one, other = (hook(update, generator(0)) for _ in range(2))
    assert isinstance(one, SealedUpdate)
    assert isinstance(other, SealedUpdate)
    assert one.payload != other.payload


def test_opened_there_is_nothing_left_of_it():
    assert sealed().unsealed() == chain()
    assert sealed().adapt(idlg()) == idlg()
    assert prune(0.5).unsealed() is None


def test_a_chain_seals_last():
    both = chain(prune(0.5), sealed())
    assert both.name == "prune+sealed"
    assert both.unsealed() == chain(prune(0.5))
    assert chain(prune(0.5)).unsealed() is None
    with pytest.raises(UsageError, match=r"'sealed' comes before 'prune'.* put what seals last"):
        chain(sealed(), prune(0.5)).unsealed()
    assert isinstance(run_client(dense(), batch_of([1]), defence=both).update, SealedUpdate)


def test_a_bound_that_cannot_be_is_refused_early_and_one_too_small_names_the_tensor(monkeypatch):
    with pytest.raises(UsageError, match="bound > 0"):
        ls.get_defence("sealed", bound=0)
    assert ls.get_defence("sealed") == Sealed()
    large = ls.LocalTraining(lr=1e6, steps=1, batch_size=1)
    with pytest.raises(BadInputError, match="beyond ±16"):
        run_client(dense(), batch_of([1]), defence=sealed(), local=large)


def test_a_key_belongs_to_one_process_and_forgets_its_secret(monkeypatch):
    monkeypatch.undo()
    first = module._public_key("ckks", 16.0)
    assert module._public_key("ckks", 16.0) is first
    assert not any("secret" in name for name in vars(first))


def test_the_server_gets_nothing_the_total_less_and_the_colluding_client_all():
    victims = [batch_of([label], seed=label) for label in range(3)]
    result = ls.audit(dense(), victims, fc_inversion(), defence=sealed(), scenario="E")
    assert str(result.status) == "sealed"
    assert result.scores is None
    total, colluding = result.also
    assert (total.viewer, colluding.viewer) == ("whoever opens the total", "a client that colludes with the server")
    plain = ls.audit(dense(), victims, fc_inversion(), scenario="E")
    assert torch.equal(colluding.scores.psnr, plain.scores.psnr)
    assert colluding.defence == "sealed"
    assert colluding.scores.psnr.min() > 100
    assert len(total.truth) == 3
    assert [note for note in result.notes if "colludes" in note and "dB at worst" in note]
    assert "seen by a client that colludes" in repr(colluding)
