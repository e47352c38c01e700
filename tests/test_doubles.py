"""New defences and malicious servers fit the seams as they are: nothing of leakscope names them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import leakscope as ls
from doubles.guarded import Guarded
from doubles.two_rounds import TwoRounds
from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.testing import check_defence
from tiny import batch_of, dense

HERE = Path(__file__).parent


def share(model, batch, *, defence=None):
    """What a client shares, where nothing is sealed."""
    update = ls.share(model, batch, defence=defence)
    assert isinstance(update, ls.SharedUpdate)
    return update


def test_a_defence_acts_in_every_place_it_may():
    plain = ls.audit(dense(), batch_of([2]), fc_inversion())
    result = ls.audit(dense(), batch_of([2]), fc_inversion(), defence=Guarded(sigma=0.0))
    # Without noise the mirrored picture comes back exactly: it is what was trained on, not what the person lost.
    assert plain.scores.psnr.min() > 100
    assert result.trained_scores.psnr.min() > 100
    assert result.scores.psnr.max() < 30


def test_what_the_client_keeps_never_reaches_the_server():
    defence, model, batch = Guarded(), dense(), batch_of([2])
    hardened = defence.harden(model, seed=3)
    update = share(hardened, batch, defence=defence)
    assert "lock.key" in dict(hardened.client.named_parameters())
    assert "lock.key" not in update.tensors
    seen = ls.observe(hardened, update, scenario="A", truth=batch)
    assert "lock.key" not in dict(seen.model.named_parameters())


def test_the_lock_and_the_other_loss_change_the_gradient():
    model, batch, defence = dense(), batch_of([2]), Guarded(bound=1e9, sigma=0.0)
    plain = share(model, batch)
    locked = share(defence.harden(model, seed=3), batch, defence=defence)
    other = share(defence.harden(model, seed=4), batch, defence=defence)
    assert not torch.allclose(2 * locked.tensors["3.bias"], plain.tensors["3.bias"], atol=1e-4)
    assert not torch.allclose(locked.tensors["3.bias"], other.tensors["3.bias"], atol=1e-6)


def test_the_lock_depends_on_more_than_the_audits_seed():
    first, second = (
        ls.audit(dense(), batch_of([2], seed=s), fc_inversion(), defence=Guarded(sigma=0.0)) for s in (0, 1)
    )
    assert first.loss != second.loss


def test_the_defence_keeps_the_contract():
    check_defence(Guarded(sigma=0.1))


def test_the_attacker_who_knows_it_is_still_that_attack():
    attack = ls.get_attack("idlg")
    revised = Guarded(sigma=0.1).adapt(attack)
    assert isinstance(attack, GradientMatching)
    assert isinstance(revised, GradientMatching)
    assert revised.recipe.noise == pytest.approx(0.01)
    assert (revised.name, revised.steps, revised.recipe.optimiser) == ("idlg", attack.steps, attack.recipe.optimiser)


@pytest.mark.parametrize("victims", [1, 2])
def test_a_malicious_server_has_a_secret_and_two_rounds(victims):
    batches = [batch_of([place], seed=place) for place in range(victims)]
    result = ls.audit(dense(), batches, TwoRounds())
    assert (result.rounds, result.server) == (2, "malicious")
    assert result.scores.psnr.min() > 100


def run(tmp_path, *options):
    """The command line in a folder that holds the doubles."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE / "doubles"), *sys.path])}
    out = tmp_path / "run"
    # Accuracy is left out for time; own code is named on the command line, where alone it may be.
    (tmp_path / "short.yaml").write_text("{utility: null, data: [digits], models: [mlp], victims: 1, workers: 1}")
    command = [
        sys.executable,
        "-m",
        "leakscope",
        "audit",
        "--config",
        "short.yaml",
        "--out",
        str(out),
        "--quiet",
        *options,
    ]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    summary = json.loads((out / "summary.json").read_text()) if (out / "summary.json").exists() else None
    return done, summary


@pytest.mark.slow
def test_the_command_line_runs_both(tmp_path):
    words = "--attack two_rounds:two_rounds --attack fc-inversion --defence none --defence guarded:guarded:sigma=0.0001"
    done, summary = run(tmp_path, *words.split())
    assert done.returncode in (0, 3), done.stderr
    # A spec with colons of its own is printed as it is.
    assert "guarded:guarded:sigma=0.0001" in done.stdout.replace("\n", "")
    cells = {(cell["attack"], cell["defence"], cell["adaptive"]): cell for cell in summary["cells"]}
    crafted = cells["two_rounds:two_rounds", "none", False]
    assert crafted["status"] == "ok"
    assert min(crafted["scores"]["psnr"]) > 60
    assert crafted["server"] == "malicious"
    guarded = cells["fc-inversion", "guarded:guarded:sigma=0.0001", False]
    assert guarded["status"] == "ok"
    assert guarded["trained_scores"]["psnr"][0] > guarded["scores"]["psnr"][0] + 10
