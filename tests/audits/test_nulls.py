from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from leakscope import rng as random
from leakscope.attacks.fc_inversion import FCInversion, fc_inversion
from leakscope.attacks.idlg import idlg
from leakscope.audits import make_plan, parse_config
from leakscope.audits.cell import run_cell
from leakscope.audits.findings import attack_findings, borrow_priors
from leakscope.audits.nulls import GUESS, PRIOR, PUBLIC, draw_unrelated, drop_copies, find_nearest, take_best
from leakscope.audits.subject import Subject
from leakscope.defences.prune import prune
from leakscope.errors import BadInputError, UnsuitableError
from leakscope.metrics import guess_baseline, psnr
from leakscope.report import CellRecord
from leakscope.types import Batch
from tiny import batch_of, dense


def _pictures(count: int, seed: int = 50) -> Batch:
    return batch_of([place % 3 for place in range(count)], seed=seed)


def test_the_baseline_is_the_highest_of_all_example_by_example():
    best = take_best({"one": torch.tensor([10.0, 14.0]), "two": torch.tensor([12.0, 11.0])})
    assert best.tolist() == [12.0, 14.0]


def test_every_null_stands_beside_the_score_and_the_best_is_the_baseline():
    victims = [batch_of([1], seed=1), batch_of([2], seed=2)]
    result = run_cell(dense(), victims, fc_inversion(), public=_pictures(20))
    assert set(result.baselines) == {GUESS, PRIOR, PUBLIC}
    assert all(values.shape == result.scores.psnr.shape for values in result.baselines.values())
    stacked = torch.stack(list(result.baselines.values()))
    assert torch.equal(result.baseline_psnr, stacked.max(0).values)
    assert not torch.equal(stacked.max(0).values, stacked.min(0).values)


def test_the_nearest_public_picture_is_found_by_looking_at_each():
    victim, public = batch_of([1, 2], seed=1), _pictures(9)
    expected = [max(float(psnr(one[None], truth[None])) for one in public.inputs) for truth in victim.inputs]
    assert find_nearest(victim, public).tolist() == pytest.approx(expected)


def test_a_copy_of_a_private_picture_is_no_public_picture():
    victim, public = batch_of([1], seed=1), _pictures(4)
    nearly = (victim.inputs + 1e-3).clamp(0, 1)
    mixed = Batch(torch.cat([victim.inputs, public.inputs, nearly]), torch.zeros(6, dtype=torch.long))
    kept = drop_copies(mixed, [victim])
    assert torch.equal(kept.inputs, public.inputs)
    assert drop_copies(victim, [victim]) is None
    # A copy of one private example is a copy, however far the others are.
    both = batch_of([1, 2], seed=1)
    assert torch.equal(
        drop_copies(Batch(torch.cat([both.inputs[:1], public.inputs]), mixed.targets[:5]), [both]).inputs, public.inputs
    )
    with_copy = run_cell(dense(), victim, fc_inversion(), public=mixed)
    assert float(with_copy.baselines[PUBLIC]) < 30


def test_public_pictures_of_another_shape_are_refused():
    with pytest.raises(BadInputError, match="shape of the private ones"):
        drop_copies(Batch(torch.rand(2, 1, 3, 3), torch.zeros(2, dtype=torch.long)), [batch_of([1])])


@dataclass(frozen=True)
class Stubborn(FCInversion):
    """Returns the same picture whatever the update: all prior, no reading."""

    def _reconstruct(self, seen, seed, watch):
        found = super()._reconstruct(seen, seed, watch)
        inputs = torch.full_like(found.inputs, 0.3)
        return type(found)(**{**found.__dict__, "inputs": inputs})


def test_an_attack_that_ignores_the_update_gains_nothing():
    """Against a blind guess alone this attack would seem to read dark pictures."""
    dark = Batch(batch_of([1], seed=1).inputs * 0.6, batch_of([1], seed=1).targets)
    result = run_cell(dense(), dark, Stubborn())
    assert float(result.scores.psnr) > float(result.baselines[GUESS]) + 1
    assert torch.equal(result.baselines[PRIOR], result.scores.psnr)
    assert float((result.scores.psnr - result.baseline_psnr).max()) == 0


def test_an_attack_that_reads_the_update_gains_over_every_null():
    result = run_cell(dense(), batch_of([2]), fc_inversion(), public=_pictures(20))
    assert float((result.scores.psnr - result.baseline_psnr).min()) > 50


def test_nulls_change_nothing_of_the_attack_itself_and_are_the_same_each_time():
    victims = [batch_of([1], seed=1), batch_of([2], seed=2)]
    runs = [
        run_cell(dense(), victims, idlg(steps=3), seed=5, public=public, prior_alone=prior)
        for public, prior in ((None, False), (_pictures(9), True), (_pictures(9), True))
    ]
    assert all(torch.equal(one.reconstruction, runs[0].reconstruction) for one in runs)
    assert all(one.history == runs[0].history and one.evaluations == runs[0].evaluations for one in runs)
    assert set(runs[0].baselines) == {GUESS}
    for name in (GUESS, PRIOR, PUBLIC):
        assert torch.equal(runs[1].baselines[name], runs[2].baselines[name])


def test_only_the_update_differs_between_the_attack_and_its_prior_alone():
    asked = []

    @dataclass(frozen=True)
    class Listening(FCInversion):
        def _reconstruct(self, seen, seed, watch):
            asked.append((seed, seen.update.tensors["1.weight"]))
            return super()._reconstruct(seen, seed, watch)

    run_cell(dense(), batch_of([1]), Listening(), seed=4)
    (own, update), (other, unrelated) = asked
    assert own == other
    assert not torch.equal(update, unrelated)


def test_the_unrelated_examples_have_the_labels_and_nothing_else_of_the_victim():
    victim = batch_of([1, 2], seed=1)
    noise, public = draw_unrelated(victim, None, seed=3), draw_unrelated(victim, _pictures(5), seed=3)
    for found in (noise, public):
        assert torch.equal(found.targets, victim.targets)
        assert found.inputs.shape == victim.inputs.shape
        assert float(found.inputs.min()) >= 0
        assert float(found.inputs.max()) <= 1
        assert float(psnr(found.inputs, victim.inputs).max()) < 20
    other = batch_of([1, 2], seed=9)
    assert torch.equal(draw_unrelated(other, None, seed=3).inputs, noise.inputs)
    assert any(torch.equal(public.inputs[0], one) for one in _pictures(5).inputs)


def test_a_null_that_cannot_be_measured_is_said_and_the_cell_stays():
    @dataclass(frozen=True)
    class Once(FCInversion):
        def _reconstruct_several(self, seen, seed, watch):
            if len(seen) == 1:
                raise UnsuitableError("only pairs")
            return super()._reconstruct_several(seen, seed, watch)

    result = run_cell(dense(), [batch_of([1]), batch_of([2], seed=4)], Once())
    assert set(result.baselines) == {GUESS}
    assert any("only pairs" in note for note in result.notes)


def test_the_guess_stays_as_it_was():
    result = run_cell(dense(), batch_of([2]), fc_inversion(), seed=4, prior_alone=False)
    expected = guess_baseline(batch_of([2]), seed=random.child_seed(4, "guess", 0))
    assert torch.equal(result.baselines[GUESS], expected)
    assert torch.equal(result.baseline_psnr, expected)


PLANNED = {
    "attacks": ["fc-inversion", "idlg:steps=20"],
    "defences": ["none", "prune:fraction=0.5"],
    "victims": 2,
    "utility": None,
}


def test_what_can_be_shared_between_cells_is_measured_once():
    plan = make_plan(parse_config(PLANNED))
    own = {(cell.attack, cell.defence, cell.adaptive): cell.prior_alone for cell in plan.attacks}
    assert own["fc-inversion", "none", False]
    assert own["idlg:steps=20", "none", False]
    assert not own["idlg:steps=20", "prune:fraction=0.5", False]
    # The attacker who knows of pruning runs another recipe, so that another prior is at work.
    assert own["idlg:steps=20", "prune:fraction=0.5", True] == (prune(0.5).adapt(idlg(steps=20)) != idlg(steps=20))
    without = make_plan(parse_config({**PLANNED, "defences": ["prune:fraction=0.5"]}))
    assert all(cell.prior_alone for cell in without.attacks)


def _records(plan, priors):
    """Records of two examples: the first gains 5 dB over a guess, the second 4 dB."""
    found = []
    for cell in plan.attacks:
        nulls = {GUESS: [12.0, 11.0]} | ({PRIOR: priors} if cell.prior_alone else {})
        best = [max(values) for values in zip(*nulls.values(), strict=True)]
        found.append(
            CellRecord(
                key=cell.key,
                model="mlp",
                data="digits",
                attack=cell.attack,
                defence=cell.defence,
                adaptive=cell.adaptive,
                scenario="C",
                seed=0,
                status="ok",
                victims=2,
                scores={"psnr": [17.0, 15.0], "baseline_psnr": best},
                baselines=nulls,
                stats={"psnr": {"worst": 17.0, "n": 2}, "baseline_psnr": {"worst": best[0], "n": 2}},
                worst=0,
            )
        )
    return found


def test_a_cell_borrows_the_prior_and_the_worst_example_follows():
    plan = make_plan(parse_config(PLANNED))
    found = borrow_priors(plan.attacks, _records(plan, [16.5, 9.0]))
    borrowed = [one for cell, one in zip(plan.attacks, found, strict=True) if not cell.prior_alone]
    assert borrowed
    for one in borrowed:
        assert one.baselines[PRIOR] == [16.5, 9.0]
        assert one.scores["baseline_psnr"] == [16.5, 11.0]
        # 17.0 dB is what the prior gives by itself: the other example lost more.
        assert one.worst == 1
        assert (one.stats["psnr"].worst, one.stats["baseline_psnr"].worst) == (15.0, 11.0)


def test_the_record_names_one_worst_example_for_every_metric():
    victims = [batch_of([label], seed=label) for label in range(3)]
    found = attack_findings(run_cell(dense(), victims, idlg(steps=4), public=_pictures(20)), paper="")
    assert found.worst is not None
    for name, stats in found.stats.items():
        assert stats.worst == pytest.approx(found.scores[name][found.worst])
    assert set(found.baselines) == {GUESS, PRIOR, PUBLIC}
    assert found.scores["baseline_psnr"] == [max(column) for column in zip(*found.baselines.values(), strict=True)]


def test_other_examples_of_the_data_are_never_the_private_ones():
    plan = make_plan(parse_config({**PLANNED, "attacks": ["fc-inversion"]}))
    subject = Subject(plan.attacks[0].subject)
    private, public = subject.private_examples(), subject.public_examples(40)
    assert len(public) == 40
    assert not any(torch.equal(one, other) for one in private.inputs for other in public.inputs)
    assert subject.public_examples(10**6) is not None
