"""What MKOR's recipes compute themselves: how pictures are counted, drops under a defence, noise of smaller batches."""

from __future__ import annotations

import math

import pytest
import torch
from reproductions.mkor import soteria, table_2, table_3, table_4
from reproductions.mkor.servers import attack_batch, compare, make_attack, scale_noise, summarise, take_different

from leakscope.reproduction import RecipeCell, Results, network
from leakscope.reproduction.results import CellResult
from leakscope.runner import CellOutcome
from leakscope.types import Batch, Reconstruction, Status


def found_as(images, labels) -> Reconstruction:
    targets = None if labels is None else torch.tensor(labels)
    return Reconstruction(images, targets, loss=0.0, status=Status.OK)


def plain(values) -> torch.Tensor:
    """Pictures of one tone each."""
    return torch.tensor(values).reshape(-1, 1, 1, 1).expand(-1, 1, 12, 12).clone()


def test_a_class_stands_beside_all_its_pictures_and_a_missing_one_counts_nothing():
    batch = Batch(plain([0.5, 0.6, 0.9]), torch.tensor([4, 4, 7]), (0.0, 1.0))
    compared = compare(found_as(plain([0.6]), [4]), batch, by_class=True)
    assert compared.known.tolist() == [True, True, False]
    assert compared.guesses[:2].flatten(1).mean(1).tolist() == pytest.approx([0.6, 0.6])
    found = summarise(compared, batch.inputs, mean=True)
    # An error of 0.1 is 20 dB, none is 150 dB; three pictures share the mean.
    assert found["psnr"] == pytest.approx((20 + 150 + 0) / 3, abs=1e-2)
    assert found["psnr_max"] == pytest.approx(150)


def test_the_papers_psnr_has_the_brightest_pixel_for_its_peak():
    batch = Batch(plain([0.5]), torch.tensor([0]), (0.0, 1.0))
    found = summarise(compare(found_as(plain([0.6]), [0]), batch, by_class=True), batch.inputs, mean=True)
    assert found["psnr"] == pytest.approx(20, abs=1e-3)
    assert found["psnr_target_peak"] == pytest.approx(20 + 20 * math.log10(0.5), abs=1e-3)


def test_other_attacks_are_assigned_by_least_error_whatever_their_labels():
    batch = Batch(plain([0.1, 0.9]), torch.tensor([0, 1]), (0.0, 1.0))
    compared = compare(found_as(plain([0.8, 0.2]), [0, 1]), batch, by_class=False)
    assert compared.guesses.flatten(1).mean(1).tolist() == pytest.approx([0.2, 0.8])


def test_nothing_found_is_zero_and_one_picture_has_no_mean():
    batch = Batch(plain([0.5, 0.6]), torch.tensor([0, 1]), (0.0, 1.0))
    nothing = compare(found_as(plain([0.5]), None), batch, by_class=True)
    assert summarise(nothing, batch.inputs, mean=True)["psnr"] == 0.0
    assert summarise(nothing, batch.inputs, mean=True)["psnr_max"] == 0.0
    one = summarise(compare(found_as(plain([0.6]), [1]), batch, by_class=False), batch.inputs, mean=False)
    assert "psnr" not in one
    assert one["psnr_max"] == pytest.approx(150)


def test_different_classes_are_the_first_of_each_in_order():
    batch = Batch(plain([0.1, 0.2, 0.3, 0.4]), torch.tensor([5, 5, 2, 9]), (0.0, 1.0))
    chosen = take_different(batch, 2)
    assert chosen.targets.tolist() == [5, 2]
    assert chosen.inputs.flatten(1)[:, 0].tolist() == pytest.approx([0.1, 0.3])
    with pytest.raises(ValueError, match="4 classes"):
        take_different(batch, 4)


def test_scaled_noise_hides_as_much_of_a_row():
    def hidden(used: int, sigma: float) -> float:
        """Noise over signal in one row of a thousand, of which `used` hold a picture each."""
        rows = torch.zeros(1_000, 64)
        rows[:used] = torch.randn(used, 64, generator=torch.Generator().manual_seed(0)) / used
        return float(sigma * rows.std() / rows[:used].std())

    many, few = hidden(1_000, 0.1), hidden(40, scale_noise(0.1, rows=0.04, paper_rows=1.0))
    assert few == pytest.approx(many, rel=0.05)
    assert hidden(40, 0.1) < 0.3 * many


@pytest.mark.parametrize(("loss", "attack"), [("raw-nll", "mkor:loss=raw-nll"), ("cross-entropy", "mkor")])
def test_a_copying_network_gives_different_classes_back_exactly(loss, attack):
    model = network("mkor-copy", normalise=None)
    found = attack_batch(
        attack=attack, data="sample-photos", indices=[list(range(39))], model=model, loss=loss, different=5
    )
    # Float32 leaves the correction for cross-entropy about 120 dB.
    assert found.values["psnr"] > 100
    assert found.values["rebuilt"] == 1.0
    assert found.values["ended_ok"] == 1.0
    assert f"loss: {loss}" in found.notes


def test_transformed_pictures_are_rebuilt_and_originals_are_not():
    found = attack_batch(
        attack="mkor:loss=raw-nll",
        data="sample-photos",
        indices=[list(range(39))],
        model=network("mkor-copy", normalise=None),
        loss="raw-nll",
        different=3,
        defence="transforms:policy=3-1-7",
    )
    assert found.values["trained_psnr"] > 100
    assert found.values["psnr"] < 30


def test_idlg_is_granted_the_labels_of_a_batch():
    attack = make_attack("idlg:steps=7")
    assert attack.num_examples is None
    assert type(attack.recipe.labels).__name__ == "Known"
    assert attack.steps == 7


def test_soteria_takes_the_value_with_it_from_the_value_without_where_both_attacks_ended_well():
    psnr = {("none", "MKOR"): 13.0, ("Soteria", "MKOR"): 12.5, ("none", "CF"): 20.0, ("Soteria", "CF"): 10.0}
    cells = []
    for (defence, method), value in psnr.items():
        for place in range(4):
            tags = {"defence": defence, "method": method, "batch": place}
            # The last attack behind Soteria gave up: what it found is no evidence.
            gave_up = place == 3 and defence == "Soteria"
            values = {"psnr_max": 0.0 if gave_up else value + place, "ended_ok": float(not gave_up)}
            record = {"values": values, "notes": []}
            cells.append(CellResult(RecipeCell(tags, {}), CellOutcome(Status.OK, record, {})))
    results = Results(tuple(cells))
    assert soteria.drops(results, "CF", metric="psnr_max") == [10.0] * 3
    verdict = {claim.id: claim.judge(results) for claim in soteria.RECIPE.claims}["less-than-cf"]
    assert verdict.effect == pytest.approx(9.5)
    assert verdict.n == 3


def test_comparisons_stay_on_one_network_and_name_the_loss():
    for recipe in (table_2.RECIPE, table_3.RECIPE, table_4.RECIPE):
        for cell in recipe.cells(recipe.scale("cpu")):
            settings = cell.spec["settings"]
            is_raw = "raw-nll" in settings["attack"]
            assert settings["loss"] == ("raw-nll" if is_raw else "cross-entropy")
    values = {("Original LeNet", "MKOR"): 12.0, ("Original LeNet", "GI"): 11.0}
    values |= {("Modified LeNet", "MKOR"): 15.0, ("Modified LeNet", "GI"): 13.0}
    cells = []
    for (column, method), value in values.items():
        for place in range(2):
            record = {"values": {"psnr": value + place}, "notes": []}
            tags = {"network": column, "method": method, "batch": place}
            cells.append(CellResult(RecipeCell(tags, {}), CellOutcome(Status.OK, record, {})))
    claims = {claim.id: claim.judge(Results(tuple(cells))) for claim in table_2.CLAIMS}
    assert (claims["strides-help"].effect, claims["strides-help"].n) == (3.0, 2)
    # DLG and iDLG were not run: the claim is about all of them.
    assert claims["mean-psnr"].outcome == "not testable"
