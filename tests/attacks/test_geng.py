from __future__ import annotations

import pytest

from leakscope.attacks.geng import PAPER, geng
from leakscope.errors import UsageError
from leakscope.matching.distances import SquaredL2
from leakscope.matching.labels import Inferred
from leakscope.matching.optimisers import LBFGS, Adam
from leakscope.matching.penalties import Clipping, Scaling
from leakscope.matching.replays import OneGradient
from leakscope.metrics import score
from leakscope.testing import check_attack
from leakscope.types import LocalTraining, Status
from tiny import batch_of, dense, seen_of


def test_the_published_settings():
    attack = geng()
    assert (attack.name, attack.paper, attack.recipe.distance) == ("geng", PAPER, SquaredL2())
    recipe = attack.recipe
    assert (recipe.labels, recipe.replay, recipe.optimiser) == (Inferred("geng"), OneGradient(), LBFGS(lr=1.0))
    assert [type(one) for one in attack.recipe.penalties] == [Clipping, Scaling]
    assert isinstance(geng(optimiser="adam").recipe.optimiser, Adam)
    with pytest.raises(UsageError, match="'lbfgs' or 'adam', got 'sgd'"):
        geng(optimiser="sgd")


def test_it_keeps_the_contract():
    check_attack(geng(steps=30))


def test_it_rebuilds_an_example_with_adam_as_well():
    batch = batch_of([2], seed=2)
    found = geng(steps=250, optimiser="adam").reconstruct(seen_of(dense(), batch, scenario="C"), seed=1)
    assert found.status is Status.OK
    assert float(score(found, batch).psnr) > 25


@pytest.mark.parametrize("scenario", ["C", "D"])
def test_full_batch_local_steps_are_divided_out_with_repeated_labels(scenario):
    # In D the rate is unknown: only the direction of the delta is compared.
    batch = batch_of([1, 1, 3], seed=4)
    seen = seen_of(dense(), batch, scenario=scenario, local=LocalTraining(lr=1e-3, steps=4, batch_size=3))
    found = geng(steps=60, retries=1).reconstruct(seen, seed=2)
    assert found.targets.tolist() == [1, 1, 3]
    assert found.loss < 1e-2 * found.history[0]
    assert float(score(found, batch).psnr.median()) > 12


def test_the_range_terms_keep_pixels_nearer_to_their_range():
    batch = batch_of([0, 1, 2, 3], seed=1)
    seen = seen_of(dense(), batch, scenario="C")
    outside = []
    for clip in (0.0, 10.0):
        found = geng(steps=150, optimiser="adam", clip=clip, scale=0.0).reconstruct(seen, seed=1).inputs
        outside.append(float((found - found.clamp(0, 1)).square().mean()))
    assert outside[1] < 0.5 * outside[0]
