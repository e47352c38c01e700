"""What the ATS recipes compute and judge: directions, pairs, rankings and layers."""

from __future__ import annotations

import pytest
import torch
from reproductions.ats_one import figure_1, figure_4, figure_5, layers
from reproductions.ats_policies import NONE, pair_cells, psnr_above, transforms_spec
from reproductions.ats_two import diversity, figure_6, policy_scores
from reproductions.ats_two import figure_5 as fifty
from reproductions.networks import small_convnet
from reproductions.rankings import best_of, overlap_of_best, overlap_of_rankings

import leakscope as ls
from leakscope.audits.cell import run_cell
from leakscope.defences.transforms.accuracy_score import accuracy_score
from leakscope.defences.transforms.defence import Transforms
from leakscope.defences.transforms.privacy_score import privacy_scores
from leakscope.metrics import psnr
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.reproduction import call_cell, network
from leakscope.reproduction.results import CellResult, Results
from leakscope.runner import CellOutcome
from leakscope.types import Status

SMALL = network("reproductions.networks:small_convnet")
PLACES = [[3], [11]]


def result(values, *, status=Status.OK, settings=None, **tags) -> CellResult:
    return CellResult(call_cell(tags, "nowhere:f", **(settings or {})), CellOutcome(status, {"values": values}))


def attacked(policy, private, trained=None, *, status=Status.OK, **tags) -> list[CellResult]:
    rows = []
    for victim, value in enumerate(private):
        values = {"psnr": [[value]]} | ({} if trained is None else {"trained_psnr": [[trained[victim]]]})
        rows.append(result(values, status=status, policy=policy, victim=victim, **tags))
    return rows


NONE_ABOVE = ({"policy": NONE}, {"policy": "Hybrid"})


def test_a_policy_is_compared_by_what_was_trained_on_and_none_by_its_only_picture():
    results = Results((*attacked(NONE, [14, 15, 16]), *attacked("Hybrid", [5, 5, 5], [9, 10.1, 10.9])))
    assert pair_cells(results, *NONE_ABOVE) == ([14, 15, 16], [9, 10.1, 10.9])
    assert pair_cells(results, *NONE_ABOVE, against="private") == ([14, 15, 16], [5, 5, 5])
    found = psnr_above(*NONE_ABOVE)(results)
    assert found.outcome == "holds"
    assert found.effect == pytest.approx(5.0)
    assert psnr_above(*NONE_ABOVE[::-1])(results).outcome == "does not hold"
    # "Lowers by at most 6 dB" and "by at most 4".
    assert psnr_above(*NONE_ABOVE[::-1], least=-6)(results).outcome == "holds"
    assert psnr_above(*NONE_ABOVE[::-1], least=-4)(results).outcome == "does not hold"


def test_an_attack_that_was_cut_short_is_no_evidence_of_protection():
    cut = attacked("Hybrid", [5, 5, 5], [1, 1, 1], status=Status.UNFINISHED)
    results = Results((*attacked(NONE, [14, 15, 16]), *cut))
    assert psnr_above(*NONE_ABOVE)(results).outcome == "not testable"


def test_a_cell_with_a_tag_more_is_another_one():
    more = attacked("Hybrid", [1, 1, 1], [1, 1, 1], pictures="as released")
    results = Results((*attacked(NONE, [14, 15, 16]), *attacked("Hybrid", [5, 6, 7]), *more))
    assert pair_cells(results, *NONE_ABOVE) == ([14, 15, 16], [5, 6, 7])
    chosen = {"policy": "Hybrid", "pictures": "as released"}
    assert pair_cells(results, {"policy": NONE}, chosen) == ([14, 15, 16], [1, 1, 1])


def test_defences_of_policies():
    assert transforms_spec("28") == "none"
    assert defence_from_spec(transforms_spec("28", augment="crop-flip")).hooks().batch is not None
    hybrid = defence_from_spec(transforms_spec("3-1-7+43-18-18"))
    assert isinstance(hybrid, Transforms)
    assert hybrid.augment == "none"
    assert len(hybrid.policy.parts) == 2


def test_the_lowest_scores_are_the_best():
    scores = {7: [0.1, 0.2], 3: [0.5, 0.6], 9: [0.3, 0.2], 4: [0.9, 0.8]}
    assert best_of(scores, 2) == [7, 9]
    found = overlap_of_best(scores, {7, 4}, best=2)
    assert found.value == 1
    assert found.n == 2
    assert overlap_of_best(scores, {7, 9}, best=2).value == 2
    assert overlap_of_rankings(scores, {7: [0.0], 4: [0.1], 3: [0.2], 9: [0.3]}, best=2).value == 1


def test_a_ranking_that_depends_on_the_pictures_has_a_wide_interval():
    sure = {0: [0.1, 0.1, 0.1], 1: [0.5, 0.5, 0.5], 2: [0.9, 0.9, 0.9]}
    assert overlap_of_best(sure, {0}, best=1).interval == (1.0, 1.0)
    unsure = {0: [0.1, 0.9, 0.1], 1: [0.9, 0.1, 0.2], 2: [0.9, 0.9, 0.9]}
    assert overlap_of_best(unsure, {0}, best=1).interval == (0.0, 1.0)
    assert overlap_of_best({0: [0.1], 1: [0.2]}, {0}, best=1).interval is None


def test_layers_are_compared_by_direction_and_biases_are_left_out():
    observed = {"a": torch.tensor([[1.0, 0.0]]), "a.bias": torch.ones(2), "b": torch.tensor([[1.0, 1.0]])}
    found = {"a": torch.tensor([[-3.0, 0.0]]), "a.bias": torch.ones(2), "b": torch.tensor([[0.0, 2.0]])}
    assert layers.similarities(observed, found) == pytest.approx([-1.0, 0.5**0.5])
    assert layers.ends([1, 2, 3, 4, 5, 6, 7]) == (1.5, 6.5)
    assert layers.ends([1, 2]) == (1, 2)


def test_gradsim_of_layers_is_that_of_the_rebuilt_picture():
    found = layers.layer_gradsim(
        policy="28", data="sample-photos", indices=[[3]], model=SMALL, attack="inverting-gradients:steps=3"
    )
    (row,) = found.values["layers"]
    # Three convolutions and a linear layer.
    assert len(row) == 4
    assert (found.values["shallow"][0], found.values["deep"][0]) == (row[0], row[-1])
    assert all(-1 <= value < 1 for value in row)


def test_privacy_is_that_of_the_search_one_number_per_picture():
    found = policy_scores.privacy(policies=["3-1-7", "28"], data="sample-photos", indices=PLACES, model=SMALL)
    batch = ls.data.load("sample-photos", split="test", indices=[3, 11])
    model = small_convnet(seed=0, channels=3, side=32, classes=7)
    for policy, row in zip(("3-1-7", "28"), found.values["privacy"], strict=True):
        assert row == pytest.approx(privacy_scores(policy, batch, model=model).tolist())
    other = policy_scores.privacy(policies=["28"], seeds=[1], data="sample-photos", indices=PLACES, model=SMALL)
    assert other.values["privacy"][0] != found.values["privacy"][1]


def test_accuracy_scores_one_picture_of_each_class():
    places = [[place] for place in range(12)]
    found = policy_scores.accuracy(policies=["0", "28"], data="sample-photos", indices=places, model=SMALL)
    batch = ls.data.load("sample-photos", split="test", indices=list(range(12)))
    kept = [batch.targets.tolist().index(one) for one in dict.fromkeys(batch.targets.tolist())]
    assert found.values["kept"] == len(kept) < 12
    model = small_convnet(seed=0, channels=3, side=32, classes=7)
    expected = [accuracy_score(policy, batch.inputs[kept], model=model) for policy in ("0", "28")]
    assert found.values["accuracy_score"] == pytest.approx(expected)


@pytest.mark.parametrize("seed", [0, 5])
def test_the_shown_picture_is_the_one_that_an_audit_trains_on(seed):
    defence = transforms_spec("3-1-7+43-18-18")
    shown = policy_scores.trained_pictures(data="sample-photos", indices=[[3]], defence=defence, seed=seed)
    batch = ls.data.load("sample-photos", split="test", indices=[3])
    model = small_convnet(seed=4, channels=3, side=32, classes=7)
    attack = attack_from_spec("inverting-gradients:steps=2")
    audit = run_cell(
        model, [batch], attack, defence=defence_from_spec(defence), scenario="B", seed=seed, prior_alone=False
    )
    expected = psnr(audit.reconstruction, shown.pictures["reconstruction"])
    assert audit.trained_scores.metrics["psnr"].tolist() == pytest.approx(expected.tolist(), abs=1e-3)
    assert torch.equal(shown.pictures["truth"], batch.inputs)
    assert not torch.equal(shown.pictures["reconstruction"], batch.inputs)


def test_gradsim_rises_as_the_distance_falls():
    assert figure_1.similarities(result({"history": [0.9, None, 0.25]})) == pytest.approx([0.1, 0.75])
    rows = [result({"history": [1.0, end]}, policy=NONE, victim=v) for v, end in enumerate((0.1, 0.12))]
    rows += [result({"history": [1.0, end]}, policy="3-1-7", victim=v) for v, end in enumerate((0.3, 0.33))]
    found = figure_1.RECIPE.claims[0].judge(Results(tuple(rows)))
    assert found.outcome == "holds"
    assert found.effect == pytest.approx(0.205)


def test_a_policy_acts_on_shallow_layers_where_it_takes_more_away_there():
    rows = [result({"shallow": [0.9], "deep": [0.9]}, policy=NONE, victim=v) for v in range(2)]
    rows += [result({"shallow": [0.2 + v / 100], "deep": [0.8]}, policy="3-1-7", victim=v) for v in range(2)]
    deep, shallow = (claim.judge(Results(tuple(rows))) for claim in figure_5.RECIPE.claims)
    assert deep.effect == pytest.approx(0.595)
    assert shallow.effect == pytest.approx(0.595)
    assert (deep.outcome, shallow.outcome) == ("holds", "holds")


def test_a_curve_that_rises_late_is_slower():
    rows = [result({"accuracies": [0.5, 0.6]}, policy=NONE, seed=seed) for seed in range(2)]
    rows += [result({"accuracies": [0.3, 0.6 + seed / 100]}, policy="Hybrid", seed=seed) for seed in range(2)]
    found = figure_4.fastness("Hybrid")(Results(tuple(rows)))
    assert found.effect == pytest.approx(-0.0975)
    assert found.outcome == "does not hold"
    assert figure_4.fastness("Hybrid", least=-0.2)(Results(tuple(rows))).outcome == "holds"


def test_best_operations_are_counted_by_what_they_do():
    assert figure_6.holds_best("3-15")
    assert not figure_6.holds_best("3-0-9")
    # 48 does what 43 does, and 28 what 39 does: nothing.
    assert figure_6.holds_best("48-28")
    assert figure_6.holds_best("0-1-26")


def scores(privacy: dict[str, float], none: float) -> Results:
    rows = [result({"privacy": [[none]]}, chunk=NONE, score="S_pri", settings={"policies": ["28"]})]
    settings = {"policies": list(privacy)}
    rows.append(result({"privacy": [[one] for one in privacy.values()]}, chunk="0", score="S_pri", settings=settings))
    rows.append(result({"privacy": [[0.2]]}, chunk=diversity.TOP, score="S_pri", settings={"policies": ["3-15-1"]}))
    return Results(tuple(rows))


def test_random_policies_are_compared_with_none_and_among_themselves():
    found = scores({"3-15": 0.25, "3-1": 0.26, "0": 0.5, "9": 0.52, "8": 0.54, "2": 0.56}, none=0.3)
    assert figure_6.scored(found, "privacy")["9"] == 0.52
    worse, _, split = (claim.judge(found) for claim in figure_6.RECIPE.claims)
    assert worse.effect == pytest.approx(4 / 6)
    assert split.effect == pytest.approx(0.53 - 0.255)
    assert split.outcome == "holds"
    beaten, _, better = (claim.judge(found) for claim in diversity.RECIPE.claims)
    assert beaten.effect == 1.0
    assert better.effect == 1.0


def test_policies_of_the_top_five_are_three_different_ones():
    drawn = diversity.draw_top_policies(20)
    assert len(set(drawn)) == 20
    for policy in drawn:
        assert len(set(policy.split("-"))) == 3
        assert {int(slot) for slot in policy.split("-")} <= set(figure_6.TOP_FIVE)
    assert diversity.draw_top_policies(5) == drawn[:5]


def test_equal_operations_count_once_and_tell_the_noise():
    rows = {24: [0.3], 42: [0.32], 43: [0.34], 0: [0.5], 29: [0.5], 3: [0.1]}
    assert fifty.by_function(rows) == {24: [pytest.approx(0.32)], 0: [0.5], 3: [0.1]}
    equal, room = fifty.gaps(rows)
    assert sorted(equal) == pytest.approx([0.0, 0.02, 0.02, 0.04])
    assert room == pytest.approx(0.32 - 0.5)
