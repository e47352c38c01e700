"""Sealed updates in an audit: nothing for the server, and beside it what is got by those who can open them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from leakscope.attacks.fc_inversion import fc_inversion
from leakscope.attacks.idlg import idlg
from leakscope.audits.cell import run_cell
from leakscope.audits.findings import attack_findings
from leakscope.audits.pooling import pool
from leakscope.client import run_client
from leakscope.defence import ClientHooks, Defence
from leakscope.defences.chain import chain
from leakscope.defences.prune import prune
from leakscope.errors import UnsuitableError
from leakscope.federated import measure_utility
from leakscope.report.evidence import group
from leakscope.report.remedies import advise
from leakscope.report.schema import CellRecord, OpenedFindings, Summary
from leakscope.report.words import opened_words, remarks
from leakscope.results import COLLUDING, TOTAL
from leakscope.types import Batch, LocalTraining, SealedUpdate, SharedUpdate, Status
from tiny import batch_of, dense, shared


@dataclass(frozen=True)
class Locking(Defence):
    """Seals without cryptography: what is measured here does not depend on it."""

    name: str = "locking"
    paper: str = "none"

    def hooks(self):
        return ClientHooks(update=lambda update, rng: SealedUpdate("test", b"x"))

    def unsealed(self):
        return chain()

    def adapt(self, attack):
        return attack


VICTIMS = tuple(batch_of([label, label + 1], seed=label) for label in range(2))
JOINED = Batch(torch.cat([v.inputs for v in VICTIMS]), torch.cat([v.targets for v in VICTIMS]))


def runs_of(local=None):
    return [(victim, run_client(dense(), victim, local=local, seed=place)) for place, victim in enumerate(VICTIMS)]


def assert_same(one, other):
    assert one.tensors.keys() == other.tensors.keys()
    for name, value in other.tensors.items():
        torch.testing.assert_close(one.tensors[name], value, rtol=0, atol=1e-6)


def test_the_mean_of_gradients_is_the_gradient_of_all_examples():
    batch, run = pool(runs_of())
    assert torch.equal(batch.inputs, JOINED.inputs)
    assert run.update.num_examples == 4
    assert_same(run.update, shared(dense(), JOINED))


def test_the_mean_of_one_local_step_is_that_step_on_all_examples():
    local = LocalTraining(lr=0.1, steps=1, batch_size=2)
    _, run = pool(runs_of(local))
    assert isinstance(run.update, SharedUpdate)
    assert run.update.local == LocalTraining(lr=0.1, steps=1, batch_size=4)
    assert run.order == ((0, 1, 2, 3),)
    assert_same(run.update, shared(dense(), JOINED, local=run.update.local))


def test_steps_of_several_clients_are_merged_in_order():
    _, run = pool(runs_of(LocalTraining(lr=0.1, steps=2, batch_size=1)))
    assert run.order == ((0, 2), (1, 3))


def test_sealed_updates_have_no_mean():
    with pytest.raises(UnsuitableError, match="open them first"):
        pool([(VICTIMS[0], run_client(dense(), VICTIMS[0], defence=Locking()))])


def test_both_views_stand_beside_the_status():
    victims = [batch_of([label], seed=label) for label in range(2)]
    result = run_cell(dense(), victims, fc_inversion(), defence=Locking(), scenario="E")
    assert (result.status, result.scores) == (Status.SEALED, None)
    total, colluding = result.also
    assert [one.viewer for one in result.also] == [TOTAL, COLLUDING]
    assert colluding.scores.psnr.min() > 100
    # Both examples are behind one update now.
    assert len(total.scores) == 2
    assert total.rounds == 1
    assert any("whoever opens the total of 2 clients" in note for note in result.notes)


def test_the_total_of_one_client_is_no_view_of_its_own():
    result = run_cell(dense(), batch_of([1]), fc_inversion(), defence=Locking())
    assert [one.viewer for one in result.also] == [COLLUDING]


def test_what_comes_before_the_seal_still_protects():
    result = run_cell(dense(), batch_of([1]), idlg(steps=3, retries=0), defence=chain(prune(0.99), Locking()))
    plain = run_cell(dense(), batch_of([1]), idlg(steps=3, retries=0), defence=prune(0.99))
    assert torch.equal(result.also[0].reconstruction, plain.reconstruction)


def test_an_attack_that_refuses_the_total_is_said_to_refuse():
    result = run_cell(dense(), VICTIMS, _refusing(), defence=Locking())
    assert [one.status for one in result.also] == [Status.REFUSED, Status.REFUSED]
    assert any("refused (never)" in note for note in result.notes)


def _refusing():
    from leakscope.attacks.fc_inversion import FCInversion

    class Refusing(FCInversion):
        def _reconstruct(self, seen, seed, watch):
            raise UnsuitableError("never")

    return Refusing()


def test_the_record_keeps_both_views():
    result = run_cell(dense(), [batch_of([1]), batch_of([2], seed=1)], fc_inversion(), defence=Locking())
    found = attack_findings(result, paper="p")
    assert [one.viewer for one in found.opened] == [TOTAL, COLLUDING]
    assert len(found.opened[1].scores["psnr"]) == 2
    assert found.opened[1].status == "ok"
    again = type(found).model_validate_json(found.model_dump_json())
    assert again == found


def cell(psnr, viewer=TOTAL, **told):
    opened = [OpenedFindings(viewer=viewer, status="ok", scores={"psnr": psnr})]
    names = {"key": "k", "model": "m", "data": "d", "attack": "a", "defence": "sealed", "scenario": "C", "seed": 0}
    return CellRecord.model_validate({**names, "status": "sealed", "opened": opened} | told)


def test_a_total_that_leaks_is_not_recommended_and_a_colluding_client_is_named():
    def judge(sealed_cell):
        open_cell = cell([], defence="none", status="ok", opened=[], scores={"psnr": [30.0], "ssim": [0.9]})
        cells = [open_cell, *(sealed_cell.model_copy(update={"adaptive": known}) for known in (False, True))]
        summary = Summary(schema=1, title="t", leakscope="0", cells=cells, threshold_psnr=20.0)
        return advise(summary).options[0]

    assert (judge(cell([25.0])).sufficient, judge(cell([15.0])).sufficient) == ("no", "yes")
    assert judge(cell([None])).sufficient == "no", "a perfect copy has no PSNR in JSON"
    colluding = judge(cell([40.0], COLLUDING))
    assert (colluding.sufficient, colluding.why) == (
        "yes",
        "sealed: nothing to read; a client that colludes with the server gets 40.0 dB",
    )


def test_the_line_of_a_sealed_cell_says_what_others_get():
    assert remarks(cell([15.0])) == ["whoever opens the total gets 15.0 dB"]


def test_a_training_under_a_seal_is_the_training_without_it_at_the_price_of_the_seal():
    train = batch_of([0, 1, 2, 3] * 4)
    options = {"clients": 2, "rounds": 3, "batch_size": 4}
    plain = measure_utility(dense(), train, train, **options)
    sealed = measure_utility(dense(), train, train, defence=Locking(), **options)
    assert (sealed.accuracy, sealed.final_loss) == (plain.accuracy, plain.final_loss)
    # The double sends one byte.
    assert (sealed.bytes_sent, plain.bytes_sent > 1000) == (1, True)
    assert sealed.step_ratio.pairs > 0


def test_words_name_the_highest_of_every_viewer():
    both = group([cell([12.0, 15.0]), cell([14.0]), cell([33.0], COLLUDING)])
    assert opened_words(both) == f"; {TOTAL} gets 15.0 dB, {COLLUDING} gets 33.0 dB"
    assert opened_words(group([cell([], status="ok", opened=[])])) == ""
