from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from leakscope import rng as random
from leakscope.attacks.fc_inversion import FCInversion, fc_inversion
from leakscope.attacks.idlg import idlg
from leakscope.audits.cell import run_cell
from leakscope.audits.findings import attack_findings
from leakscope.defence import ClientHooks, Defence
from leakscope.defences.noise import gaussian_noise
from leakscope.defences.prune import prune
from leakscope.errors import KnowledgeError, UnsuitableError, UsageError
from leakscope.explanation.assess import AS_GOOD
from leakscope.registry import get_attack
from leakscope.report import CellRecord, verdict
from leakscope.types import Batch, LocalTraining, SealedUpdate, Status
from tiny import batch_of, convolutional, dense


def test_one_cell_says_what_was_attacked_and_how_it_ended():
    result = run_cell(dense(), batch_of([2]), fc_inversion(), scenario="E", seed=3)
    assert (result.attack, result.defence, result.scenario, result.seed) == ("fc-inversion", "none", "E", 3)
    assert result.status is Status.OK
    assert result.scores.psnr.min() > 100
    assert result.scores.label_correct.all()
    assert result.baseline_psnr.shape == (1,)
    assert result.seconds > 0
    torch.testing.assert_close(result.reconstruction, result.truth, rtol=0, atol=1e-8)


def test_several_victims_are_scored_each_against_its_own_batch():
    victims = [batch_of([label], seed=label) for label in range(3)]
    result = run_cell(dense(), victims, fc_inversion())
    assert len(result.scores) == len(result.truth) == len(result.reconstruction) == 3
    assert result.scores.psnr.min() > 100
    assert result.scores.label_correct.all()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    runs = [
        run_cell(dense(), batch_of([1]), idlg(steps=2), defence=gaussian_noise(1e-3), seed=seed) for seed in (5, 5, 6)
    ]
    assert torch.equal(runs[0].reconstruction, runs[1].reconstruction)
    assert runs[0].loss == runs[1].loss
    assert not torch.equal(runs[0].reconstruction, runs[2].reconstruction)


def test_a_victims_noise_does_not_depend_on_how_many_others_there_are():
    alone = run_cell(dense(), [batch_of([1])], fc_inversion(), defence=gaussian_noise(1e-3))
    first_of_two = run_cell(
        dense(), [batch_of([1]), batch_of([2], seed=9)], fc_inversion(), defence=gaussian_noise(1e-3)
    )
    assert torch.equal(alone.reconstruction[0], first_of_two.reconstruction[0])


@dataclass(frozen=True)
class Sealing(Defence):
    name: str = "sealing"
    paper: str = "none"

    def hooks(self):
        return ClientHooks(update=lambda update, rng: SealedUpdate("test", b""))

    def adapt(self, attack):
        return attack


def test_a_sealed_update_is_recorded_and_not_attacked():
    result = run_cell(dense(), batch_of([1]), idlg(), defence=Sealing())
    assert result.status is Status.SEALED
    assert result.scores is None
    assert (result.attack, result.defence, result.scenario) == ("idlg", "sealing", "C")


def test_the_adaptive_attacker_is_marked_and_is_another_attack():
    naive = run_cell(dense(), batch_of([1]), idlg(steps=3, retries=0), defence=prune(0.5))
    informed = run_cell(dense(), batch_of([1]), idlg(steps=3, retries=0), defence=prune(0.5), adaptive=True)
    assert (naive.adaptive, informed.adaptive) == (False, True)
    assert naive.loss != informed.loss


@dataclass(frozen=True)
class Failing(FCInversion):
    """Ends as it is told, and rebuilds well only where it is told that all went well."""

    statuses: tuple[Status, ...] = ()
    rebuilds: bool = False

    def _reconstruct_several(self, seen, seed, watch):
        found = super()._reconstruct_several(seen, seed, watch)
        return [
            replace(one, status=status, inputs=one.inputs if status is Status.OK or self.rebuilds else one.inputs * 0)
            for one, status in zip(found, self.statuses, strict=True)
        ]


def test_one_failed_victim_makes_the_cell_no_evidence():
    victims = [batch_of([1]), batch_of([2], seed=1)]
    for last in (Status.OK, Status.DIVERGED, Status.UNFINISHED):
        attack = Failing(statuses=(Status.OK, last))
        assert run_cell(dense(), victims, attack, prior_alone=False).status is last


def test_what_explains_the_update_as_the_truth_does_counts_however_the_run_ended():
    for status in (Status.DIVERGED, Status.UNFINISHED):
        attack = Failing(statuses=(status,), rebuilds=True)
        result = run_cell(dense(), [batch_of([1])], attack, prior_alone=False)
        assert result.status is Status.OK
        assert AS_GOOD in result.notes
    ended_in_nan = Failing(statuses=(Status.NAN,), rebuilds=True)
    assert run_cell(dense(), [batch_of([1])], ended_in_nan, prior_alone=False).status is Status.NAN


def test_a_mixture_of_several_examples_stays_no_evidence_however_well_it_explains_the_update():
    """Two pictures of one class, nearly alike: their mixture explains the update of both."""
    one = batch_of([1])
    both = Batch(torch.cat([one.inputs, 0.98 * one.inputs]), torch.tensor([1, 1]))
    result = run_cell(dense(), both, fc_inversion(), scenario="A", prior_alone=False)
    (fit,) = result.fits
    assert fit.explained > 0.99
    assert fit.truth == pytest.approx(1.0)
    assert result.status is Status.DIVERGED


@dataclass(frozen=True)
class Elsewhere(FCInversion):
    """Returns something that has nothing to do with the update, and calls it a success."""

    def _reconstruct(self, seen, seed, watch):
        found = super()._reconstruct(seen, seed, watch)
        noise = random.uniform(tuple(found.inputs.shape), random.generator(seed, "elsewhere"), like=found.inputs)
        return replace(found, inputs=noise)


def test_a_result_that_explains_less_than_the_truth_does_is_no_evidence():
    result = run_cell(dense(), batch_of([1]), Elsewhere(), prior_alone=False)
    (fit,) = result.fits
    assert fit.truth == pytest.approx(1.0)
    assert fit.explained < fit.unrelated
    assert result.status is Status.UNEXPLAINED


def test_a_result_that_explains_all_that_the_truth_does_is_evidence_under_a_defence():
    """Noise that drowns the update is protection, not a wrong description of it."""
    result = run_cell(dense(), batch_of([1]), fc_inversion(), defence=gaussian_noise(10.0), prior_alone=False)
    (fit,) = result.fits
    assert fit.truth is not None
    assert fit.truth < 0.1
    assert result.status is Status.OK


def test_a_few_steps_of_an_attack_give_no_grade_a():
    """They gave "Grade A: no more than a guess" and exit code 0."""
    result = run_cell(convolutional(), batch_of([1]), get_attack("inverting-gradients", steps=2))
    findings = attack_findings(result, paper="")
    names = {"key": "0", "model": "tiny", "data": "noise", "attack": "inverting-gradients", "defence": "none"}
    record = CellRecord.model_validate(
        findings.model_dump() | names | {"scenario": "C", "seed": 0, "status": str(result.status)}
    )
    judged = verdict([record], 20.0)
    assert float(result.scores.psnr) < 20
    assert result.status is Status.UNFINISHED
    assert (judged.status, judged.exit_code) == ("inconclusive", 3)
    assert judged.grade in "?DEF", "what it rebuilt may be proof, what it did not shows nothing"


def test_an_attack_without_lockstep_gets_a_seed_of_its_own_for_every_victim():
    seeds = []

    @dataclass(frozen=True)
    class Recording(FCInversion):
        def _reconstruct(self, seen, seed, watch):
            seeds.append(seed)
            return super()._reconstruct(seen, seed, watch)

    run_cell(dense(), [batch_of([1]), batch_of([2])], Recording(), seed=4, prior_alone=False)
    assert seeds == [random.child_seed(4, "victim", 0), random.child_seed(4, "victim", 1)]


def test_fewer_reconstructions_than_examples_show_grey():
    result = run_cell(dense(), batch_of([1, 2]), fc_inversion(), scenario="A")
    missing = (result.scores.assignment < 0).nonzero().flatten().tolist()
    assert len(missing) == 1
    assert torch.all(result.reconstruction[missing[0]] == 0.5)
    assert any("mixture" in note for note in result.notes)


def test_local_steps_reach_the_attack():
    local = LocalTraining(lr=0.05, steps=2, batch_size=1)
    result = run_cell(dense(), batch_of([1]), get_attack("dlg-adam", steps=5), local=local)
    assert any("local steps are simulated" in note for note in result.notes)


def test_refusals_pass_through():
    with pytest.raises(UsageError, match="at least one batch"):
        run_cell(dense(), [], idlg())
    with pytest.raises(KnowledgeError, match="'adam-l2' needs the labels"):
        run_cell(dense(), batch_of([1]), get_attack("adam-l2"), scenario="C")
    with pytest.raises(UnsuitableError, match="convolution"):
        run_cell(convolutional(), batch_of([1]), fc_inversion())
    with pytest.raises(UnsuitableError, match="one example per update, got 2"):
        run_cell(dense(), batch_of([1, 2]), idlg())
