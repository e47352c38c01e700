from __future__ import annotations

import pytest

from leakscope.attacks.cpl import PAPER, cpl
from leakscope.errors import UsageError
from leakscope.matching.candidates import Patterned
from leakscope.matching.distances import SquaredL2
from leakscope.matching.optimisers import LBFGS
from leakscope.matching.penalties import LabelTerm
from leakscope.metrics import score
from leakscope.testing import check_attack
from leakscope.types import LocalTraining, Status
from tiny import batch_of, dense, seen_of


def test_the_published_settings():
    attack = cpl()
    assert (attack.name, attack.paper, attack.steps) == ("cpl", PAPER, 300)
    assert (attack.recipe.distance, attack.recipe.optimiser) == (SquaredL2(), LBFGS(lr=1.0))
    assert attack.recipe.penalties == (LabelTerm(1e-4),)
    assert attack.recipe.candidate == Patterned("patch", 4)
    assert cpl(label_weight=0).recipe.penalties == ()


def test_it_keeps_the_contract():
    check_attack(cpl(steps=30))


@pytest.mark.parametrize("pattern", ["patch", "dark", "grey"])
def test_it_rebuilds_image_and_label_from_the_update_alone(pattern):
    batch = batch_of([3], seed=3)
    found = cpl(steps=40, pattern=pattern).reconstruct(seen_of(dense(), batch, scenario="E"), seed=1)
    assert found.status is Status.OK
    scores = score(found, batch)
    assert float(scores.psnr) > 30
    assert scores.label_correct.all()


def test_it_undoes_local_steps():
    batch = batch_of([1], seed=2)
    seen = seen_of(dense(), batch, scenario="C", local=LocalTraining(lr=1e-2, steps=3))
    assert float(score(cpl(steps=40).reconstruct(seen, seed=1), batch).psnr) > 30


def test_the_label_term_steers_and_is_no_part_of_the_loss():
    seen = seen_of(dense(), batch_of([1]), scenario="C")
    plain, steered = (cpl(steps=2, retries=0, label_weight=weight) for weight in (0.0, 1.0))
    first, second = plain.reconstruct(seen, seed=1), steered.reconstruct(seen, seed=1)
    assert first.history[0] == second.history[0]
    assert first.history[2] != second.history[2]
    assert steered.evaluate(seen, second) == second.loss


def test_a_misnamed_pattern_is_refused():
    with pytest.raises(UsageError, match="pattern must be one of"):
        cpl(pattern="stripes")
