"""Measures and judges of chapter 5 of the thesis: signs, units, baselines, which cells are shared."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from reproductions.thesis import table_5_1, table_5_2, table_5_3, table_5_4, table_5_5, table_5_6, table_5_7
from reproductions.thesis.generated import describe
from reproductions.thesis.lock_sizes import measure_lock
from reproductions.thesis.locks import ARMS, KNOWN, LOCKED, NORMALISED, PLAIN, RELU, UNSCALED

from leakscope.metrics.legacy import psnr_root_mse_8bit
from leakscope.reproduction import RecipeCell, Results
from leakscope.reproduction.results import CellResult
from leakscope.runner import CellOutcome
from leakscope.types import Batch, Status


def result(values, *, status=Status.OK, **tags) -> CellResult:
    return CellResult(RecipeCell(tags, {}), CellOutcome(status, {"values": values}))


def outcomes(recipe, cells) -> dict[str, str]:
    return {claim.id: claim.judge(Results(tuple(cells))).outcome for claim in recipe.claims}


def test_accuracy_claims_fall_on_the_side_of_the_thesis_for_its_own_numbers():
    cells = [
        result({"accuracy": value / 100 + 0.0001 * seed}, place=place, method=method, model=model, data=data, seed=seed)
        for seed in (0, 1, 2)
        for (place, method), values in table_5_1.PRINTED.items()
        for (model, data), value in zip(table_5_1.COLUMNS, values, strict=True)
    ]
    found = outcomes(table_5_1.RECIPE, cells)
    for claim in ("lenet-costs-little", "resnet-costs-little", "helps-resnet-20-on-cifar-100", "helps-at-224-pixels"):
        assert found[claim] == "holds"
    assert found["fair-lenet-costs-little"] == found["relu-costs-little"] == "not testable"


def test_a_lock_that_costs_four_points_does_not_hold():
    cells = [
        result(
            {"accuracy": accuracy + 0.001 * seed}, place=place, method=method, model="LeNet", data="MNIST", seed=seed
        )
        for seed in (0, 1, 2)
        for place in ("Cen.", "FL")
        for method, accuracy in ((PLAIN, 0.80), (NORMALISED, 0.84), (LOCKED, 0.80))
    ]
    found = outcomes(table_5_1.RECIPE, cells)
    assert found["lenet-costs-little"] == "holds"
    assert found["fair-lenet-costs-little"] == "does not hold"


def test_what_a_stranger_loses_is_the_clients_mean_less_the_strangers_accuracy():
    one = result({"own_keys": [0.9, 0.8, 0.7], "random_and_initial": 0.3, "random_key": 0.8})
    assert table_5_3.lost(one, "random_and_initial") == pytest.approx(0.5)
    assert table_5_3.lost(one, "random_key") == pytest.approx(0.0)
    assert table_5_3.lost(result({"own_keys": [0.9]}, status=Status.ERROR), "random_key") is None


def test_key_claims_fall_on_the_side_of_the_thesis_for_its_own_numbers():
    cells = []
    for (model, data), (*own, _mean, stranger) in table_5_3.PRINTED.items():
        tags = {"model": model, "data": data}
        for seed in (0, 1, 2):
            values = {"own_keys": [one / 100 for one in own], "random_and_initial": stranger / 100 + 0.001 * seed}
            cells.append(result({**values, "random_key": own[0] / 100}, method=LOCKED, place="FL", seed=seed, **tags))
        cells.append(result({"proportion": table_5_3.PROPORTIONS[model] / 100}, method="parameters", **tags))
    found = outcomes(table_5_3.RECIPE, cells)
    for claim in ("random-key-and-locks-lose", "small-networks-lose-more", "more-classes-lose-more"):
        assert found[claim] == "holds"
    assert found["gap-grows-with-proportion"] == "holds"
    assert found["relu-random-key-and-locks-lose"] == "not testable"


def test_the_lock_of_lenet_is_two_layers_from_the_key_to_twelve_channels():
    model = {"name": "lenet-dlg", "seed": 0, "mode": "eval"}
    found = measure_lock(model=model, data="mnist", shape=[1, 32, 32], defence="key-lock").values
    lock = 2 * (1024 * 12 + 12)
    others = (25 * 12 + 12) + 2 * (12 * 12 * 25 + 12) + (768 * 10 + 10)
    assert found["lock"] == lock
    assert found["proportion"] == pytest.approx(lock / (lock + others))


def test_curves_apart_in_either_direction_are_not_together():
    assert table_5_2.between([0.5, 0.7], [0.4, 0.4]) == pytest.approx(0.2)
    for locked, outcome in (([0.5, 0.51], "holds"), ([0.4, 0.4], "does not hold"), ([0.6, 0.6], "does not hold")):
        cells = [
            result({"accuracies": curve}, method=method, model="ResNet-20", data="C-10", seed=seed)
            for seed in (0, 1)
            for method, curve in ((PLAIN, [0.5, 0.5]), (LOCKED, locked))
        ]
        assert outcomes(table_5_2.RECIPE, cells)["resnet-20-curves-together"] == outcome


def attacked(attack, method, psnr, *, status=Status.OK, **values):
    return [
        result(
            {"psnr": [[psnr + 0.1 * victim]], "baseline_psnr": [[10.0]], **values},
            status=status,
            attack=attack,
            method=method,
            model="LeNet",
            data="C-10",
            victim=victim,
        )
        for victim in range(3)
    ]


def test_a_knowing_attacker_that_did_not_end_well_is_no_evidence_of_protection():
    cells = [
        *attacked("GRNN", PLAIN, 40.0, ssim=[[1.0]]),
        *attacked("GRNN", NORMALISED, 25.0),
        *attacked("GRNN", LOCKED, 8.0, status=Status.UNEXPLAINED, ssim=[[0.1]]),
        *attacked("GRNN", KNOWN, 9.0, status=Status.UNFINISHED),
    ]
    found = outcomes(table_5_6.RECIPE, cells)
    assert found["grnn-lowered"] == found["grnn-less-similar"] == found["lowers-more-than-normalisation"] == "holds"
    assert found["protects-against-a-knowing-grnn"] == "not testable"
    ended = [*cells[:9], *attacked("GRNN", KNOWN, 9.0)]
    assert outcomes(table_5_6.RECIPE, ended)["protects-against-a-knowing-grnn"] == "holds"
    better = [*cells[:9], *attacked("GRNN", KNOWN, 30.0)]
    assert outcomes(table_5_6.RECIPE, better)["protects-against-a-knowing-grnn"] == "does not hold"


def test_rebuilt_beyond_a_blind_guess_is_not_nothing():
    low = outcomes(table_5_4.RECIPE, attacked("GRNN", LOCKED, 9.0))
    high = outcomes(table_5_4.RECIPE, [*attacked("GRNN", LOCKED, 12.0), *attacked("GRNN", PLAIN, 40.0)])
    assert (low["perturbed-grnn"], high["perturbed-grnn"]) == ("holds", "does not hold")
    assert (
        outcomes(table_5_4.RECIPE, attacked("GRNN", KNOWN, 9.0, status=Status.DIVERGED))["perturbed-for-those-who-know"]
        == "not testable"
    )


def test_what_is_shared_is_compared_in_the_right_direction():
    def shared(values):
        cells = [
            result({"psnr": [[psnr + 0.1 * victim]]}, shared=share, victim=victim)
            for share, psnr in values.items()
            for victim in range(3)
        ]
        return outcomes(table_5_7.RECIPE, cells)

    thesis = {"none": 8, "none, layers known": 8, "Key": 40, "Lock": 9, "Lock, key read off": 9, "Both": 45}
    assert set(shared(thesis).values()) == {"holds"}
    read = shared({**thesis, "Lock, key read off": 39.5})
    assert read["key-cannot-be-computed-from-the-lock"] == "does not hold"


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_what_several_items_show_runs_once(scale):
    def specs(module, **tags):
        recipe = module.RECIPE
        cells = recipe.cells(recipe.scale(scale))
        return {str(one.spec) for one in cells if tags.items() <= one.tags.items()}

    assert specs(table_5_2) < specs(table_5_1)
    assert specs(table_5_3, method=LOCKED) < specs(table_5_1)
    assert specs(table_5_4) == specs(table_5_6)
    assert specs(table_5_7, shared="none") == specs(table_5_6, attack="GRNN", method=KNOWN)
    assert {one.RECIPE.shares for one in (table_5_2, table_5_3)} == {table_5_1.NAME}
    assert {one.RECIPE.shares for one in (table_5_4, table_5_7)} == {table_5_6.NAME}


def test_every_comparison_has_fair_baselines_and_an_attacker_who_knows():
    methods = {cell.tags["method"] for cell in table_5_6.RECIPE.cells(table_5_6.RECIPE.scale("cpu"))}
    assert {PLAIN, NORMALISED, UNSCALED, LOCKED, KNOWN, RELU} <= methods
    assert ARMS[KNOWN] == (ARMS[LOCKED][0], True)
    assert {KNOWN, UNSCALED} <= {cell.tags["method"] for cell in table_5_5.cells(table_5_5.RECIPE.scale("cpu"))}
    trained = [cell for cell in table_5_1.RECIPE.cells(table_5_1.RECIPE.scale("cpu")) if cell.tags["model"] == "LeNet"]
    assert {NORMALISED, UNSCALED, RELU} <= {cell.tags["method"] for cell in trained}
    # The same activations and initial weights in all of them.
    assert len({str(cell.spec["network"]) for cell in trained if cell.tags["seed"] == 0}) == 1


def test_a_search_that_is_no_evidence_counts_in_psnr_alone():
    truth = torch.full((1, 1, 4, 4), 0.5)
    scores = SimpleNamespace(metrics={"psnr": torch.tensor([12.0])}, label_correct=torch.tensor([True]))
    for status, known in ((Status.OK, 12.0), (Status.UNFINISHED, math.nan)):
        found = SimpleNamespace(
            scores=scores, reconstruction=truth + 0.1, baseline_psnr=torch.tensor([9.0]), status=status
        )
        told = describe(found, Batch(truth, torch.tensor([0])))  # type: ignore[arg-type]
        assert (told["psnr"], told["label_correct"], told["baseline_psnr"]) == (12.0, 1.0, 9.0)
        assert told["legacy"] == pytest.approx(float(psnr_root_mse_8bit(truth + 0.1, truth)))
        assert told["ended_well"] == pytest.approx(known, nan_ok=True)
    nothing = SimpleNamespace(scores=None, reconstruction=None, baseline_psnr=None, status=Status.NAN)
    assert all(math.isnan(value) for value in describe(nothing, Batch(truth, torch.tensor([0]))).values())  # type: ignore[arg-type]
