"""Measures and judges of chapter 4 of the thesis: which side counts, what is divided, which cells are shared."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from reproductions.thesis import figure_4_4, figure_4_5, figure_4_6, table_4_1, table_4_2, table_4_3
from reproductions.thesis.by_seed import above_by_seed, judge_seeds, mean_of
from reproductions.thesis.reading import (
    character_errors,
    draw_words,
    edit_distance,
    federate,
    mean_weight,
    share_read,
)
from reproductions.thesis.text import at_passes

from leakscope.data import encode_texts
from leakscope.reproduction import RecipeCell, Results
from leakscope.reproduction.results import CellResult
from leakscope.runner import CellOutcome
from leakscope.types import Status

RECIPES = (table_4_1, table_4_2, table_4_3, figure_4_4, figure_4_5, figure_4_6)


def result(values, *, status=Status.OK, **tags) -> CellResult:
    return CellResult(RecipeCell(tags, {}), CellOutcome(status, {"values": values}))


def results(*cells: CellResult) -> Results:
    return Results(cells)


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [("", "abc", 3), ("abc", "", 3), ("abc", "abc", 0), ("abd", "abc", 1), ("kitten", "sitting", 3), ("bca", "abc", 2)],
)
def test_edit_distance(one, other, distance):
    assert edit_distance([ord(c) for c in one], [ord(c) for c in other]) == distance


def test_errors_are_over_the_characters_of_the_true_texts_and_shares_over_words():
    truth = encode_texts(["AB", "CDEF"])
    said = encode_texts(["AB", "CXE"], length=25)
    assert character_errors(said, truth) == pytest.approx(2 / 6)
    assert share_read(said, truth) == 0.5
    # The other way round the denominator is another one.
    assert character_errors(truth, said) == pytest.approx(2 / 5)


def test_the_first_clients_weight_is_the_mean_over_rounds():
    rounds = [SimpleNamespace(weights={0: 0.2, 1: 0.8}), SimpleNamespace(weights={0: 0.4, 1: 0.6})]
    assert mean_weight(SimpleNamespace(clients=(0, 1), rounds=rounds)) == pytest.approx(0.3)  # type: ignore[arg-type]
    assert math.isnan(mean_weight(SimpleNamespace(clients=(0,), rounds=rounds)))  # type: ignore[arg-type]


def test_clients_have_words_of_their_own():
    assert torch.equal(draw_words("plain", 3, seed=1_000).inputs, draw_words("plain", 3, seed=1_000).inputs)
    assert not torch.equal(draw_words("plain", 3, seed=1_000).inputs, draw_words("plain", 3, seed=1_001).inputs)


def test_curves_are_compared_after_as_many_passes():
    assert at_passes([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 1, every=3) == [3.0, 6.0]
    assert at_passes([7.0, 8.0], 3, every=3) == [7.0, 8.0]


def test_seeds_are_the_units_and_a_seed_with_a_failed_cell_does_not_count():
    found = results(
        result({"accuracy": 0.5}, seed=0, method="a", batch=1),
        result({"accuracy": 0.7}, seed=0, method="a", batch=2),
        result({"accuracy": 0.4}, seed=0, method="b", batch=1),
        result({"accuracy": 0.9}, seed=1, method="a", batch=1),
        result({"accuracy": 0.8}, seed=1, method="b", batch=1),
        result({"accuracy": 0.9}, status=Status.ERROR, seed=2, method="a", batch=1),
        result({"accuracy": 0.1}, seed=2, method="b", batch=1),
    )
    assert mean_of(found.where(seed=2), "accuracy", method="a") is None
    verdict = above_by_seed("accuracy", {"method": "a"}, {"method": "b"})(found)
    assert (verdict.n, verdict.effect) == (2, pytest.approx(0.15))
    assert above_by_seed("accuracy", {"method": "b"}, {"method": "a"})(found).outcome == "does not hold"
    assert judge_seeds(lambda _: None, unit="")(found).outcome == "not testable"


def test_three_epochs_that_read_less_are_a_positive_gap():
    cells = [
        result({"accuracy": 0.8, "accuracies": [0.1, 0.2, 0.6, 0.7, 0.7, 0.8]}, seed=0, method="FedAvg", epochs=1),
        result({"accuracy": 0.5, "accuracies": [0.3, 0.5]}, seed=0, method="FedAvg", epochs=3),
    ]
    assert table_4_1.epoch_gap(results(*cells), "FedAvg") == pytest.approx(0.3)
    assert figure_4_4.behind(results(*cells), "FedAvg") == pytest.approx(0.7 - 0.4)
    tagged = [
        result({"accuracies": [0.1, 0.2, 0.3]}, seed=0, method="FedAvg", epochs=1, batch="256"),
        result({"accuracies": [0.1, 0.2, 0.5]}, seed=0, method="FedAvg", epochs=1, batch="800"),
    ]
    assert figure_4_4.small_behind(results(*tagged), "FedAvg") == pytest.approx(0.2)


def test_claims_fall_on_the_side_of_the_thesis_for_its_own_numbers():
    cells = []
    for seed in (0, 1, 2):
        for (method, batch, epochs), values in table_4_1.PRINTED.items():
            accuracy = (values[0] or 20.0) / 100 + 0.001 * seed
            tags = {"method": method, "batch": batch, "epochs": epochs, "data": table_4_1.BOTH, "seed": seed}
            cells.append(result({"accuracy": accuracy, "start": 0.5, "held_out": accuracy}, **tags))
        tags = {"method": "CRNN", "data": table_4_1.BOTH, "batch": "800", "epochs": 0, "seed": seed}
        cells.append(result({"accuracy": 0.8548}, **tags))
    found = {claim.id: claim.judge(results(*cells)).outcome for claim in table_4_1.CLAIMS}
    assert found.pop("written-above-fedavg") == "not testable"
    assert set(found.values()) == {"holds"}


def test_encryption_of_the_printed_numbers_costs_less_than_three_points():
    cells = [
        result({"accuracy": values[0] / 100 + 0.001 * seed}, method=method, encryption=encryption, seed=seed)
        for seed in (0, 1, 2)
        for (method, encryption), values in table_4_3.PRINTED.items()
    ]
    found = {claim.id: claim.judge(results(*cells)) for claim in table_4_3.RECIPE.claims[:3]}
    assert {verdict.outcome for verdict in found.values()} == {"holds"}
    assert found["he-costs-boosting-little"].effect == pytest.approx(-0.025)


def test_distance_of_curves_and_words_that_only_one_reads():
    assert figure_4_5.apart([0.1, 0.5], [0.2, 0.3]) == pytest.approx(0.15)
    assert table_4_2.won_share([True, True, False, True], [False, True, True, False]) == pytest.approx(2 / 3)
    assert table_4_2.won_share([True], [True]) is None


@pytest.mark.parametrize("module", RECIPES[1:])
@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_what_several_items_show_runs_once(module, scale):
    first = {str(cell.spec) for cell in table_4_1.cells(table_4_1.RECIPE.scale(scale))}
    own = {str(cell.spec) for cell in module.cells(module.RECIPE.scale(scale))}
    assert module.RECIPE.shares == table_4_1.NAME
    assert own & first, "the cells without encryption, and with training losses, are Table 4.1's"
    assert (own <= first) == (module in (table_4_2, figure_4_4))


def test_a_federation_learns_and_says_what_it_read():
    scale = table_4_1.RECIPE.scale("smoke")
    cell = next(one for one in table_4_1.cells(scale) if one.tags["method"] == "FedBoosting")
    found = federate(**cell.spec["settings"])  # type: ignore[arg-type]
    assert len(found.values["accuracies"]) == 1  # type: ignore[arg-type]
    assert 0 < found.values["first_weight"] < 1  # type: ignore[operator]
    assert found.pictures["texts"].shape == (2, 25)
    assert found.values["accuracy"] == pytest.approx(found.values["accuracies"][-1])  # type: ignore[index]
