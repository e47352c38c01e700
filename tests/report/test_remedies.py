"""What to do: the cheapest defence that was shown to be enough, and nothing else."""

from __future__ import annotations

import pytest
from report_summaries import cell, summary

from leakscope import report
from leakscope.report.remedies import advise


def cost(name, *, drop=0.0, time=1.0, upload=1.0, **more):
    return {
        "name": name,
        "model": "resnet20",
        "data": "cifar10",
        "accuracy": 0.9 - drop,
        "accuracy_drop": drop,
        "step_time_ratio": time,
        "upload_ratio": upload,
    } | more


def both(name, psnr=12.2, *, knowing=None, **fields):
    """A defence against both attackers."""
    return [
        cell(defence=name, psnr=[psnr], **fields),
        cell(defence=name, psnr=[psnr if knowing is None else knowing], adaptive=True, **fields),
    ]


def advice(*cells, costs=(), plain=30.0, **changes):
    content = summary(seeds=1) | {"cells": [cell(psnr=[plain]), *cells], "defences": list(costs)} | changes
    return advise(report.parse_summary(content))


def test_the_cheapest_of_the_sufficient_is_named():
    found = advice(
        *both("dear"), *both("cheap"), *both("broken", knowing=25.0), costs=[cost("dear", drop=0.05), cost("cheap")]
    )
    assert found.chosen is not None
    assert found.chosen.name == "cheap"
    assert "Switch on cheap" in found.headline
    assert [option.name for option in found.options] == ["cheap", "dear", "broken"]
    assert found.options[2].why == "one who knows it still gets 25.0 dB, above the gate of 18 dB"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"drop": 0.01}, {"drop": 0.02}),
        ({"drop": 0.01, "time": 2.0}, {"drop": 0.02, "time": 1.0}),
        ({"time": 1.0, "upload": 1.0}, {"time": 1.5, "upload": 0.1}),
        ({"drop": 0.01, "time": 1.1}, {"drop": 0.01, "time": 1.2}),
        ({"drop": 0.01, "time": 1.1, "upload": 0.5}, {"drop": 0.01, "time": 1.1, "upload": 1.0}),
        ({"drop": 0.2}, {"drop": None}),  # what was not measured is not cheap
        ({"drop": -0.01, "time": 1.0}, {"drop": 0.0, "time": 2.0}),  # a gain of accuracy is chance: time decides
    ],
)
def test_accuracy_then_time_then_traffic(first, second):
    def paid(name, how):
        return cost(name, **{**how, "drop": 0.0}) | {"accuracy_drop": how.get("drop", 0.0)}

    found = advice(*both("b"), *both("a"), costs=[paid("a", first), paid("b", second)])
    assert found.chosen is not None
    assert found.chosen.name == "a"


def test_the_highest_cost_over_all_networks_counts():
    other = {"model": "mlp"}
    found = advice(
        *both("a"), *both("b"), costs=[cost("a", drop=0.0), cost("a", drop=0.3, **other), cost("b", drop=0.1)]
    )
    assert found.chosen is not None
    assert found.chosen.name == "b"


@pytest.mark.parametrize("status", ["diverged", "timeout", "error", "unexplained", "unfinished", "nan", "oom"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_a_broken_attack_recommends_nothing(status, adaptive):
    cells = both("weak")
    cells[adaptive] = cell(defence="weak", psnr=[9.0], adaptive=adaptive, status=status)
    found = advice(*cells, costs=[cost("weak")])
    assert found.chosen is None
    assert found.headline.startswith("No defence can be recommended: inconclusive for weak.")
    assert found.options[0].sufficient == "inconclusive"
    assert "gave evidence" in found.options[0].why


def test_a_defence_that_only_an_unaware_attacker_faced_is_not_recommended():
    found = advice(cell(defence="hidden", psnr=[9.0]), costs=[cost("hidden")])
    assert found.chosen is None
    assert found.options[0].sufficient == "inconclusive"
    assert found.options[0].why == "not tested against an attacker who knows it"


def test_an_example_above_the_gate_counts_even_if_its_grade_is_not_the_worst():
    # The first is worse by grade and below the gate; the second is above it.
    cells = [cell(defence="d", psnr=[17.5, 18.5], ssim=[0.9, 0.0], adaptive=adaptive) for adaptive in (False, True)]
    found = advice(*cells, costs=[cost("d")])
    assert found.chosen is None
    assert "18.5 dB" in found.options[0].why


def test_a_network_that_learns_nothing_is_no_success():
    at_chance = cost("noise", drop=0.8) | {"accuracy": 0.1, "classes": 10, "chance": 0.1, "at_chance": True}
    found = advice(*both("noise"), costs=[at_chance])
    assert found.chosen is None
    assert found.options[0].why == "with it the network is no better than chance"
    assert found.options[0].note == "10.0 % is what guessing among 10 classes gets (10 %)"
    assert advice(*both("noise"), costs=[cost("noise") | {"diverged": True}]).chosen is None


def test_an_untrained_reference_is_said():
    lost = cost("none") | {"accuracy": 0.11, "classes": 10, "chance": 0.1, "at_chance": True}
    found = advice(*both("a"), costs=[lost, cost("a")])
    assert "learnt nothing in this run: 11.0 % is what guessing among 10 classes gets" in found.notes[0]


def test_every_setting_that_leaks_must_have_been_tried():
    elsewhere = cell(psnr=[30.0], model="mlp")
    found = advice(elsewhere, *both("a"), costs=[cost("a")])
    assert found.chosen is None
    assert "mlp on cifar10" in found.options[0].why
    assert advice(elsewhere, *both("a"), *both("a", model="mlp"), costs=[cost("a")]).chosen is not None


def test_where_nothing_leaks_none_is_needed():
    found = advice(*both("a"), plain=12.0)
    assert found.chosen is None
    assert "none is needed" in found.headline


def test_a_broken_run_without_leaks_asks_for_another_and_claims_nothing():
    content = summary(seeds=1) | {"cells": [cell(status="timeout", psnr=[])], "defences": []}
    found = advise(report.parse_summary(content))
    assert "none is needed" not in found.headline
    assert "again" in found.headline


def test_a_failed_self_check_recommends_nothing():
    found = advice(*both("a"), costs=[cost("a")], self_check={"name": "x", "psnr": 3.0, "passed": False})
    assert found.chosen is None
    assert "self-check failed" in found.headline


def test_no_defence_tested():
    assert "no defence was tested" in advice().headline


def test_sealed_updates_are_sufficient():
    sealed = [cell(defence="ckks", status="sealed", psnr=[], adaptive=adaptive) for adaptive in (False, True)]
    found = advice(*sealed, costs=[cost("ckks", time=20.0)])
    assert found.chosen is not None
    assert found.chosen.why == "sealed: nothing to read"


def test_sufficient_against_the_unaware_alone_is_not_sufficient():
    found = advice(*both("hidden", 9.0, knowing=18.1), costs=[cost("hidden")])
    assert found.chosen is None
    assert found.options[0].sufficient == "no"
    assert found.headline.startswith("The only defence tested is not sufficient.")
    assert advice(*both("hidden", 9.0, knowing=18.0), costs=[cost("hidden")]).chosen is not None


def test_none_of_several_suffices():
    found = advice(*both("a", 25.0), *both("b", knowing=40.0), costs=[cost("a"), cost("b")])
    assert found.headline.startswith("None of the 2 defences tested is sufficient.")
    assert not found.detail


def test_what_is_open_is_told_apart_from_what_fails():
    broken = [cell(defence="open", psnr=[9.0]), cell(defence="open", psnr=[], adaptive=True, status="diverged")]
    found = advice(*broken, *both("fails", 25.0), costs=[cost("open"), cost("fails")])
    assert found.headline.startswith(
        "No defence can be recommended: inconclusive for open, and no other is sufficient."
    )
    assert [option.name for option in found.options] == ["open", "fails"]


def test_a_cheaper_one_that_is_inconclusive_is_said_and_not_chosen():
    broken = [cell(defence="open", psnr=[9.0]), cell(defence="open", psnr=[9.0], adaptive=True, status="unfinished")]
    found = advice(*broken, *both("dear"), costs=[cost("open"), cost("dear", drop=0.05)])
    assert found.chosen is not None
    assert found.chosen.name == "dear"
    assert "Cheaper, but inconclusive: open." in found.detail
    later = advice(*broken, *both("dear"), costs=[cost("open", drop=0.06), cost("dear", drop=0.05)])
    assert "inconclusive" not in later.detail


def test_the_attack_that_leaks_must_itself_have_been_tried_by_one_who_knows():
    """Many weak attacks that end well must not hide that the one to fear broke down."""
    plain = [cell("dlg", psnr=[9.0], seed=seed) for seed in range(30)]
    weak = [one for seed in range(30) for one in both("d", 9.0, attack="dlg", seed=seed)]
    unaware = cell(defence="d", psnr=[9.0])
    elsewhere = both("d", 9.0, model="mlp")
    broken = cell(defence="d", psnr=[9.0], adaptive=True, status="diverged")
    found = advice(*plain, *weak, unaware, broken, *elsewhere, costs=[cost("d")])
    assert found.chosen is None
    assert found.options[0].why == (
        "no evidence from inverting-gradients that knows it for resnet20 on cifar10, which leaks without a defence"
    )
    assert advice(*plain, *weak, unaware, *elsewhere, costs=[cost("d")]).chosen is None, "never run"
    refused = cell(defence="d", psnr=[], adaptive=True, status="refused")
    assert advice(*plain, *weak, unaware, refused, *elsewhere, costs=[cost("d")]).chosen is not None
    ran = cell(defence="d", psnr=[9.0], adaptive=True)
    assert advice(*plain, *weak, unaware, ran, *elsewhere, costs=[cost("d")]).chosen is not None


def test_equal_prices_are_told_and_the_one_that_leaks_less_is_named():
    # 0.04 points, 0.04 of the time, 0.004 of the traffic: no difference to decide by.
    paid = [cost("a", drop=0.0104, time=1.04, upload=0.504), cost("b", drop=0.0100, time=1.0, upload=0.5)]
    found = advice(*both("a", 10.0), *both("b", 11.0), costs=paid)
    assert found.chosen is not None
    assert found.chosen.name == "a"
    assert "Equally cheap, and leaking no less: b." in found.detail
    assert advice(*both("b", 10.0), *both("a", 10.0), costs=paid).chosen.name == "a", "then the name"


def test_what_the_choice_costs_and_leaks_is_said():
    found = advice(*both("a", 10.0, knowing=12.5), costs=[cost("a", drop=0.012, time=1.26, upload=0.125)])
    assert found.detail == (
        "It costs 1.2 points of accuracy, 1.3 × the time of a client step, 0.12 × the upload. "
        "The worst image came back at 12.5 dB, by inverting-gradients knowing it."
    )
    assert found.words == f"{found.headline} {found.detail}"


def test_advice_names_the_same_worst_image_as_the_rest_of_the_report():
    # The second image has the higher PSNR, but anyone could have guessed most of it.
    scores = {"psnr": [24.0, 25.0], "ssim": [0.5, 0.5], "baseline_psnr": [8.0, 20.0]}
    found = advice(*both("a", scores=scores), costs=[cost("a")])
    assert found.options[0].why == "one who knows it still gets 24.0 dB, above the gate of 18 dB"
    low = {"psnr": [9.0, 11.0], "ssim": [0.1, 0.1], "baseline_psnr": [8.0, 14.0]}
    assert "The worst image came back at 9.0 dB" in advice(*both("a", scores=low), costs=[cost("a")]).detail


def test_an_image_above_the_gate_is_named_where_the_worst_one_is_below_it():
    scores = {"psnr": [17.0, 18.5], "ssim": [0.9, 0.1], "baseline_psnr": [2.0, 18.4]}
    found = advice(*both("a", scores=scores), costs=[cost("a")])
    assert found.options[0].why == "one who knows it still gets 18.5 dB, above the gate of 18 dB"


def test_an_accuracy_that_was_not_measured_is_said():
    found = advice(*both("a"))
    assert found.chosen is not None
    assert found.headline == "Switch on a: it keeps every example below 18 dB; its accuracy was not measured."
    measured = advice(*both("a"), *both("b"), costs=[cost("b", drop=0.3)])
    assert measured.chosen is not None
    assert measured.chosen.name == "b"


@pytest.mark.parametrize(
    ("interval", "told"),
    [
        ([-0.051, 0.205], "7.7 points of accuracy (-5.1 to 20.5 at 95 %, not told apart from none)"),
        ([0.012, 0.142], "7.7 points of accuracy (1.2 to 14.2 at 95 %)"),
        ([-0.2, -0.1], "7.7 points of accuracy (-20.0 to -10.0 at 95 %)"),
        (None, "7.7 points of accuracy"),
    ],
)
def test_a_cost_that_could_be_none_is_said_to_be(interval, told):
    found = advice(*both("a", 10.0), costs=[cost("a", drop=0.077, accuracy_drop_ci=interval)])
    assert found.detail.startswith(f"It costs {told}, ")


def test_what_the_run_cannot_tell_apart_in_accuracy_is_named():
    cells = [*both("a", 10.0), *both("b", 10.0), *both("c", 10.0)]
    near = cost("b", drop=0.05, accuracy_drop_ci=[-0.02, 0.12])
    far = cost("c", drop=0.4, accuracy_drop_ci=[0.2, 0.6])
    found = advice(*cells, costs=[cost("a", drop=0.01, accuracy_drop_ci=[-0.06, 0.08]), near, far])
    assert found.chosen is not None
    assert found.chosen.name == "a"
    assert "In accuracy this run cannot tell it apart from: b." in found.detail
    assert "apart from: b, c" not in found.detail
    told = advice(*cells, costs=[cost("a", drop=0.01), cost("b", drop=0.05), cost("c", drop=0.4)])
    assert "cannot tell" not in told.detail, "without intervals nothing is claimed"


def test_the_interval_is_that_of_the_network_that_loses_most():
    paid = [
        cost("a", drop=0.01, accuracy_drop_ci=[0.0, 0.02]),
        cost("a", drop=0.05, accuracy_drop_ci=[0.03, 0.07], model="other"),
    ]
    assert "costs 5.0 points of accuracy (3.0 to 7.0 at 95 %)" in advice(*both("a", 10.0), costs=paid).detail
