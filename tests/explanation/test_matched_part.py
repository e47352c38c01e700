"""What of an update a result has to explain, by an attacker who knows a defence and by one who does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from leakscope.attack import Attack, Watch
from leakscope.attacks.fc_inversion import FCInversion, fc_inversion
from leakscope.attacks.inverting_gradients import inverting_gradients
from leakscope.audits.cell import run_cell
from leakscope.defence import Defence
from leakscope.explanation import MatchedPart, explained_by
from leakscope.explanation.fit import unrelated_share
from leakscope.explanation.verdict import CONVINCING, MARGIN, TOLERANCE, gain
from leakscope.models import build
from leakscope.observation.observe import observe
from leakscope.registry import attack_from_spec, get_defence
from leakscope.types import Batch, Fit, Observation, Reconstruction, Status
from tiny import batch_of, convolutional, dense, shared


def seen_under(defence: Defence, batch: Batch) -> Observation:
    model = convolutional()
    return observe(model, shared(model, batch, defence=defence), scenario="A", truth=batch)


def truth_of(attack: Attack, seen: Observation, batch: Batch) -> float:
    compared = attack.matched_part(seen)
    return explained_by(compared.seen, batch.inputs, batch.targets, view=compared.view)[0]


@pytest.mark.parametrize("spec", ["inverting-gradients", "ggl:prior=smooth", "policy-aware"])
def test_who_knows_of_pruning_explains_what_was_left(spec: str):
    attack, defence, batch = attack_from_spec(spec), get_defence("prune", fraction=0.7), batch_of([1])
    seen = seen_under(defence, batch)
    assert truth_of(attack, seen, batch) < 0.97
    assert truth_of(defence.adapt(attack), seen, batch) == pytest.approx(1.0, abs=1e-9)


def test_who_knows_of_signs_compares_signs():
    attack, defence, batch = inverting_gradients(), get_defence("sign"), batch_of([1])
    seen = seen_under(defence, batch)
    assert truth_of(defence.adapt(attack), seen, batch) > 0.9 > truth_of(attack, seen, batch)


def test_who_knows_of_soteria_explains_the_tensors_that_were_shared_as_they_are():
    attack, defence, batch = inverting_gradients(), get_defence("soteria", percentile=80.0), batch_of([1])
    seen = seen_under(defence, batch)
    compared = defence.adapt(attack).matched_part(seen)
    assert set(seen.update.tensors) - set(compared.seen.update.tensors) == {"3.weight"}
    assert truth_of(attack, seen, batch) < 0.99
    assert truth_of(defence.adapt(attack), seen, batch) == pytest.approx(1.0, abs=1e-9)


def test_numbers_are_counted_that_are_compared_in_all_rounds():
    attack, defence, batch = inverting_gradients(), get_defence("prune", fraction=0.7), batch_of([1])
    seen = seen_under(defence, batch)
    tensors = seen.update.tensors.values()
    assert MatchedPart(seen).count() == sum(value.numel() for value in tensors)
    left = sum(int(value.count_nonzero()) for value in tensors)
    assert defence.adapt(attack).matched_part(seen).count() == left < MatchedPart(seen).count() / 3
    assert MatchedPart(replace(seen, earlier=(seen, seen))).count() == 3 * MatchedPart(seen).count()


def test_a_declaration_is_doubted_with_all_of_the_update():
    """Of an update from a file the truth is not known: what a known defence hides might be a wrong description."""
    defence, batch = get_defence("prune", fraction=0.7), batch_of([1])
    seen = seen_under(defence, batch)
    attack = defence.adapt(inverting_gradients(steps=100))
    for diagnosing, view in ((True, MatchedPart(seen).view), (False, attack.matched_part(seen).view)):
        found = attack.reconstruct(seen, diagnosing=diagnosing)
        assert found.fit is not None
        assert found.targets is not None
        assert found.fit.explained == explained_by(seen, found.inputs, found.targets, view=view)[0]


def test_noise_that_hides_the_truth_is_no_divergence():
    """Where labels make the update, a long run under noise ends where it began: there is nothing else to be found."""
    model, batch = build("lenet5", num_classes=4, image_size=32).eval(), batch_of([1], shape=(3, 32, 32))
    batch = Batch(batch.inputs.float(), batch.targets)
    seen = observe(model, shared(model, batch, defence=get_defence("gaussian-noise")), scenario="C", truth=batch)
    ended = {}
    for steps in (40, 100):
        attack = inverting_gradients(steps=steps)
        found = attack.reconstruct(seen, diagnosing=False)
        assert found.status is Status.DIVERGED
        ended[steps] = attack.judge(seen, found, [batch]).status
    assert ended == {40: Status.DIVERGED, 100: Status.OK}


@dataclass(frozen=True)
class _Astray(FCInversion):
    """Turns what it found upside down."""

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        found = super()._reconstruct(seen, seed, watch)
        return replace(found, inputs=found.inputs.flip(2, 3))


def test_a_little_of_the_update_that_shows_the_picture_must_be_found():
    """Noise leaves the truth little to explain, and the picture can be read: who misses it shows no protection."""
    noisy, batch = get_defence("gaussian-noise", sigma=0.05), batch_of([1])
    found = run_cell(dense(), batch, fc_inversion(), defence=noisy, adaptive=True, prior_alone=False)
    (fit,) = found.fits
    assert fit.truth is not None
    assert gain(fit.truth, fit.unrelated) < MARGIN
    astray = run_cell(dense(), batch, _Astray(), defence=noisy, adaptive=True, prior_alone=False)
    assert (found.status, astray.status) == (Status.OK, Status.UNEXPLAINED)


def test_shared_numbers_for_each_private_one_decide_what_is_hidden():
    """Nearly as much as the truth, but not half of what tells it from unrelated inputs: only noise would excuse it."""
    model, batch = dense(), batch_of([1])
    noisy = shared(model, batch, defence=get_defence("gaussian-noise", sigma=0.05))
    seen = observe(model, noisy, scenario="A", truth=batch)
    truth, unrelated = explained_by(seen, batch.inputs, batch.targets)[0], unrelated_share(seen, batch.targets)
    low, high = truth - TOLERANCE * (1 - unrelated), unrelated + CONVINCING * (truth - unrelated)
    blends = (torch.lerp(batch.inputs, batch.inputs.flip(2, 3), step / 100) for step in range(101))
    near = next(one for one in blends if low < explained_by(seen, one, batch.targets)[0] < high)
    attack = fc_inversion()
    found = replace(attack.reconstruct(seen, diagnosing=False), inputs=near, targets=batch.targets, status=Status.OK)
    found = replace(found, fit=Fit(explained_by(seen, near, batch.targets)[0], 0.0, unrelated))
    assert attack.judge(seen, found, [batch]).status is Status.UNEXPLAINED
