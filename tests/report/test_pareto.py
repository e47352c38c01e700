"""Accuracy against leakage: who is on the front, who is beaten, and who cannot be judged."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from report_summaries import cell, records, render, summary

from leakscope.report import DefenceCost
from leakscope.report.costs import accuracy_words
from leakscope.report.pareto import DefencePlace, front, places
from leakscope.report.tradeoff import tradeoffs


def both(name, psnr, **fields):
    return [cell(defence=name, psnr=[psnr], adaptive=adaptive, **fields) for adaptive in (False, True)]


def cost(name, accuracy, **more):
    fields = {"model": "resnet20", "data": "cifar10", "ci": [accuracy - 0.01, accuracy + 0.01]}
    return DefenceCost.model_validate({"name": name, "accuracy": accuracy, **fields, **more})


def standing(found):
    return {place.name: place.standing for place in found}


@pytest.mark.parametrize(
    ("accuracy", "leakage", "beaten"),
    [
        (0.8, 15.0, False),  # the same: neither beats the other
        (0.7, 15.0, True),
        (0.8, 16.0, True),
        (0.7, 16.0, True),
        (0.9, 16.0, False),
        (0.7, 14.0, False),
        (0.9, 14.0, False),
    ],
)
def test_a_place_beats_what_is_nowhere_better(accuracy, leakage, beaten):
    def place(a, b):
        return DefencePlace("x", a, (a, a), b, "B", "front")

    assert place(0.8, 15.0).beats(place(accuracy, leakage)) is beaten


def test_the_front_by_accuracy_and_by_the_strongest_attacker():
    cells = records(cell(psnr=[30.0]), *both("mild", 18.0), *both("strong", 10.0), *both("poor", 19.0))
    # The unaware attacker gets little of this one, the one who knows it gets all.
    cells += records(cell(defence="hidden", psnr=[8.0]), cell(defence="hidden", psnr=[29.0], adaptive=True))
    costs = [cost("none", 0.9), cost("mild", 0.85), cost("strong", 0.6), cost("poor", 0.7), cost("hidden", 0.8)]
    found = places(cells, costs)
    assert [place.name for place in front(found)] == ["none", "mild", "strong"]
    assert standing(found) == {
        "none": "front",
        "mild": "front",
        "strong": "front",
        "poor": "dominated",
        "hidden": "dominated",
    }
    assert next(place for place in found if place.name == "hidden").leakage == 29.0


def test_what_was_not_measured_is_neither_on_the_front_nor_beats_another():
    cells = records(cell(psnr=[30.0]), *both("fair", 20.0), *both("chance", 8.0))
    cells += records(cell(defence="unknown", psnr=[8.0]))
    cells += records(cell(defence="broken", psnr=[8.0]))
    cells += records(cell(defence="broken", psnr=[8.0], adaptive=True, status="diverged"))
    costs = [cost(name, 0.9) for name in ("none", "unknown", "broken")] + [cost("fair", 0.8)]
    costs += [cost("chance", 0.85, at_chance=True)]
    # Whatever else it leaks, another is as accurate and leaks less than this one was seen to.
    cells += records(cell(defence="beaten", psnr=[25.0]))
    costs += [cost("beaten", 0.8)]
    assert standing(places(cells, costs)) == {
        "none": "front",
        "fair": "front",
        "chance": "at chance",
        "unknown": "inconclusive",
        "broken": "inconclusive",
        "beaten": "dominated",
    }


def test_diverged_trainings_sealed_updates_and_missing_accuracies_have_no_place():
    cells = records(*both("diverged", 9.0), *both("unmeasured", 9.0))
    cells += records(cell(defence="sealed", psnr=[], status="sealed", adaptive=True))
    assert places(cells, [cost("diverged", 0.9, diverged=True), cost("sealed", 0.9)]) == []


def test_one_chart_per_network_and_data_set_that_a_reader_of_words_can_follow():
    cells = records(cell(psnr=[30.0]), *both("a", 12.0), *both("b", 25.0))
    cells += records(cell(psnr=[30.0], model="mlp"), *both("a", 12.0, model="mlp"))
    costs = [cost("none", 0.9), cost("a", 0.8), cost("b", 0.7), cost("a", 0.5, model="mlp")]
    (figure,) = tradeoffs(cells, costs, 18.0)
    assert figure.title == "resnet20 on cifar10"
    assert figure.note == "On the front: no defence, a; beaten by another: b."
    drawn = str(figure.svg)
    assert "b: accuracy 70.0 % (69.0 to 71.0), highest image 25.0 dB, grade" in drawn
    assert "gate 18 dB" in drawn
    ElementTree.fromstring(drawn)
    assert drawn.count("dot faded") == 1
    both_drawn = tradeoffs(cells, [*costs, cost("none", 0.6, model="mlp")], 18.0)
    assert [figure.title for figure in both_drawn] == ["resnet20 on cifar10", "mlp on cifar10"]


def test_the_stairs_keep_to_what_is_on_the_front():
    cells = records(cell(psnr=[30.0]), *both("a", 20.0), *both("b", 10.0))
    (figure,) = tradeoffs(cells, [cost("none", 0.9), cost("a", 0.8), cost("b", 0.6)], 18.0)
    tree = ElementTree.fromstring(str(figure.svg))
    (line,) = [element for element in tree.iter() if element.attrib.get("class") == "front"]
    corners = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    dots = [
        (float(element.attrib["cx"]), float(element.attrib["cy"])) for element in tree.iter() if element.tag == "circle"
    ]
    assert corners[::2] == dots
    # From a dot left along its leakage, then down to the next.
    assert corners[1] == (dots[1][0], dots[0][1])
    assert corners[3] == (dots[2][0], dots[1][1])


def test_the_page_shows_front_and_seeds():
    content = summary(seeds=1)
    content["defences"][1] |= {"accuracies": [0.86, 0.88, 0.876]}
    content["defences"][2] |= {"at_chance": True, "chance": 0.1, "classes": 10, "accuracy_drop": 0.0}
    page = render(content, None, show_images=False)
    assert "Accuracy against leakage" in page
    assert "On the front: no defence" in page
    assert "3 seeds" in page
    assert "at chance</td>" in page


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"accuracy_drop": 0.012}, "80.0 % [79.0, 81.0] (-1.2 points)"),
        ({"accuracy_drop": 0.0, "accuracies": [0.79, 0.81]}, "80.0 % [79.0, 81.0] over 2 seeds (+0.0 points)"),
        ({"accuracy_drop": 0.0, "at_chance": True}, "80.0 % [79.0, 81.0]; 80.0 % is what guessing gets"),
        ({"accuracy_drop": 0.0, "diverged": True}, "80.0 % [79.0, 81.0]; training diverged"),
        ({"name": "none", "accuracy_drop": 0.0}, "80.0 % [79.0, 81.0]"),
        ({"accuracy": None}, "not measured"),
    ],
)
def test_accuracy_in_words(fields, told):
    assert accuracy_words(cost("d", 0.8).model_copy(update=fields)) == told
