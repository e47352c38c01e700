"""No way to the truth (P29): not by the seed, not by a module's memory, not by a crafted model."""

from __future__ import annotations

import pytest
from torch import nn

import leakscope as ls
from doubles.cheats import DrawsTheNoiseAgain, HandsOutAnotherNetwork, HandsOutARecorder, ReadsTheModulesMemory
from leakscope.defences.noise import gaussian_noise
from leakscope.errors import LeakscopeError, UsageError
from tiny import batch_of, dense

MARGIN_DB = 3.0


class Remembers(nn.Sequential):
    """Keeps its last input, as visualisation code often does."""

    def forward(self, input):
        self.last = input.detach()
        return super().forward(input)


def remembering(seed=0):
    return Remembers(*dense(seed=seed))


def no_better_than_a_guess(result):
    assert result.scores is not None
    assert result.baseline_psnr is not None
    return bool((result.scores.psnr <= result.baseline_psnr + MARGIN_DB).all())


def test_the_clients_noise_cannot_be_drawn_again_from_the_seed():
    result = ls.audit(
        dense(), batch_of([2]), DrawsTheNoiseAgain(sigma=0.1), defence=gaussian_noise(0.1), scenario="E", seed=7
    )
    assert no_better_than_a_guess(result), result.scores.psnr


@pytest.mark.parametrize("scenario", ["A", "C", "E"])
def test_a_module_that_remembers_its_input_hands_nothing_over(scenario):
    result = ls.audit(remembering(), batch_of([2]), ReadsTheModulesMemory(), scenario=scenario)
    assert no_better_than_a_guess(result), result.scores.psnr


def test_nor_when_update_and_observation_are_made_by_hand():
    model, batch = remembering(), batch_of([2])
    update = ls.share(model, batch)
    assert not hasattr(model, "last")
    seen = ls.observe(model, update, scenario="A", truth=batch)
    found = ReadsTheModulesMemory().reconstruct(seen)
    # What it may find is the noise that the observed network was tried with.
    assert float(ls.score(found, batch).psnr) < float(ls.metrics.guess_baseline(batch)) + MARGIN_DB


def test_nor_over_local_steps_and_several_rounds():
    local = ls.LocalTraining(lr=0.05, steps=2, batch_size=1)
    result = ls.audit(remembering(), batch_of([2, 1]), ReadsTheModulesMemory(), local=local, rounds=2, scenario="A")
    assert no_better_than_a_guess(result), result.scores.psnr


@pytest.mark.parametrize("how", ["hook", "global hook", "own forward"])
def test_a_crafted_model_cannot_record(how):
    result = ls.audit(dense(), batch_of([2]), HandsOutARecorder(how=how))
    assert no_better_than_a_guess(result), result.scores.psnr
    assert result.server == "malicious"


def test_a_crafted_layer_of_its_own_is_refused():
    with pytest.raises(UsageError, match="other weights than the agreed one"):
        ls.audit(dense(), batch_of([2]), HandsOutARecorder(how="own class"))


@pytest.mark.parametrize("how", ["hook", "global hook", "own forward"])
def test_a_changed_architecture_cannot_record_either(how):
    result = ls.audit(dense(), batch_of([2]), HandsOutAnotherNetwork(how=how))
    assert no_better_than_a_guess(result), result.scores.psnr


def test_a_changed_architecture_may_hold_known_layers_only():
    with pytest.raises(LeakscopeError, match="could record what the client feeds it"):
        ls.audit(dense(), batch_of([2]), HandsOutAnotherNetwork(how="own class"))
