"""Formulas behind the recipes of the thesis's chapters 3 and 6, each against a value worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from reproductions.thesis import faces, losses, partial, recognisers, traces
from reproductions.thesis.figure_3_5 import success_curve
from reproductions.thesis.table_3_7 import some_fail
from reproductions.thesis.verdicts import above_by_unit, falls_short, rises, share_exceeds, stalls, unpaired_above
from torch import nn

from leakscope.attacks.dlg import dlg
from leakscope.attacks.grnn import grnn
from leakscope.matching.distances.distance import differentiate
from leakscope.reproduction import CellResult, RecipeCell, Results, network
from leakscope.reproduction.find import find_recipes
from leakscope.runner import CellOutcome
from leakscope.types import Batch, Status

# Recipes of other chapters have cells of their own beside those they share.
SHARING = [
    name
    for name, one in find_recipes().items()
    if one.shares and name.startswith(("thesis/table-3", "thesis/figure-3"))
]


def results(*rows):
    """Cells with these tags and values."""
    return Results(
        tuple(
            CellResult(RecipeCell(tags, {}), CellOutcome(Status.OK, {"values": values}, {}, seconds=0.0))
            for tags, values in rows
        )
    )


def test_errors_of_pictures_by_hand():
    truth = Batch(torch.zeros(2, 1, 8, 8), torch.tensor([0, 1]))
    truth.inputs[1] = 1.0
    images = truth.inputs.flip(0).clone()
    # The picture of ones lies 0.5 off in its left half and 0.1 off in the right one.
    images[0, :, :, :4], images[0, :, :, 4:] = 0.5, 0.9
    found = traces.compare(images, 0.0, truth)
    assert found["mse"] == pytest.approx((0.25 + 0.01) / 2 / 2)
    assert found["mae"] == pytest.approx((0.5 + 0.1) / 2 / 2)
    assert found["norm"] == pytest.approx(math.sqrt(64 * 0.13) / 2)
    assert found["coarse"] == pytest.approx(0.065)
    assert found["psnr"] == pytest.approx((150 - 10 * math.log10(0.13)) / 2, abs=1e-3)


def test_what_cancels_in_a_block_is_not_seen_from_afar():
    truth = Batch(torch.full((1, 1, 8, 8), 0.5), torch.tensor([0]))
    signs = torch.ones(8, 8)
    signs[:, ::2] = -1
    found = traces.compare(truth.inputs + 0.25 * signs, 0.0, truth)
    assert found["mse"] == pytest.approx(0.0625)
    assert found["coarse"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("norm", [0.0, 0.3, 2.0])
def test_the_squared_norm_comes_back_from_the_distance(norm):
    assert traces.squared_norm(norm**2 + norm, grnn(steps=1)) == pytest.approx(norm**2)
    assert traces.squared_norm(norm**2, dlg(steps=1)) == pytest.approx(norm**2)


def test_a_trace_keeps_marks_and_stays_at_its_last_finite_iterate():
    trace = traces.Trace(planned=101)
    for step in range(60):
        distance = math.inf if step == 59 else 100.0 - step
        trace.see(step, torch.full((1, 1, 1, 2, 2), float(step)), torch.tensor([distance]))
    assert trace.at(0)[1] == 100.0
    assert trace.at(10)[0].unique().tolist() == [10.0]
    assert trace.at(50)[1] == 50.0
    assert trace.at(100)[1] == 42.0
    assert trace.at(100)[0].unique().tolist() == [58.0]


def watch(**options):
    usual: dict[str, Any] = {
        "model": network("lenet-dlg"),
        "data": "digits",
        "indices": [[3], [7]],
        "attack": "dlg:steps=2,retries=0",
    }
    return traces.watch_attack(**{**usual, **options}).values


def test_a_watched_attack_ends_where_the_attack_ends():
    found = watch(attack="grnn:steps=4,width=4")
    assert len(found["mse@0"]) == len(found["label_correct"]) == 2
    assert found["mse@100"] == pytest.approx(found["mse"], rel=1e-4)
    assert found["gradient@0"][0] > 0
    loud = watch(attack="grnn:steps=4,width=4", defence="gaussian-noise:sigma=1.0")
    assert loud["gradient@0"][0] > 10 * found["gradient@0"][0]


GRADIENTS = {"a": torch.tensor([[[3.0, 0.0]], [[1.0, 1.0]]]), "b": torch.tensor([[4.0], [1.0]])}
TARGET = {"a": torch.tensor([[[0.0, 0.0]], [[1.0, 0.0]]]), "b": torch.tensor([[0.0], [3.0]])}


def test_losses_of_the_ablation_by_hand():
    other = {name: value + 1 for name, value in TARGET.items()}
    assert losses.DISTANCES["MSE"].value(GRADIENTS, TARGET).tolist() == [25.0, 5.0]
    assert losses.DISTANCES["WD"].value(GRADIENTS, TARGET).tolist() == pytest.approx([5.0, math.sqrt(5)])
    assert losses.DISTANCES["MSE & WD & TVLoss"].value(GRADIENTS, TARGET).tolist()[0] == pytest.approx(30.0)
    both = losses.DISTANCES["MSE & CD"].value(GRADIENTS, other)
    parts = [losses.DISTANCES[name].value(GRADIENTS, other) for name in ("MSE", "CD")]
    assert torch.allclose(both, parts[0] + parts[1])
    assert torch.allclose(losses.DISTANCES["MSE & CD & TVLoss"].value(GRADIENTS, other), both)


@pytest.mark.parametrize("loss", losses.DISTANCES)
def test_cotangents_are_what_autograd_gives(loss):
    drawn = torch.Generator().manual_seed(1)
    found = {name: torch.randn(value.shape, generator=drawn) for name, value in GRADIENTS.items()}
    distance = losses.DISTANCES[loss]
    value, pulled = distance.value_and_cotangent(found, TARGET if loss != "CD" else GRADIENTS)
    known, expected = differentiate(distance, found, TARGET if loss != "CD" else GRADIENTS)
    assert torch.allclose(value, known)
    for name in expected:
        assert torch.allclose(pulled[name], expected[name], atol=1e-6)


def test_the_variation_counts_where_the_loss_names_it():
    plain, smooth = (losses.grnn_with(loss, steps=3) for loss in ("MSE & WD", "MSE & WD & TVLoss"))
    assert plain.recipe.penalties == ()
    assert [one.weight for one in smooth.recipe.penalties] == [1e-3]
    assert plain.recipe.distance == smooth.recipe.distance
    assert smooth.recipe == grnn(schedule="paper").recipe


class Fixed(nn.Module):
    """The scores that a face holds."""

    def forward(self, faces):
        return faces.flatten(1)


def test_people_among_the_likeliest():
    scores = torch.tensor([[9.0, 8.0, 7.0, 6.0, 5.0, 4.0], [9.0, 8.0, 7.0, 6.0, 5.0, 4.0]])
    people = torch.tensor([0, 2])
    assert faces.top_shares(Fixed(), scores, people) == {1: 0.5, 3: 1.0, 5: 1.0}
    assert faces.top_shares(Fixed(), scores, torch.tensor([1, 3])) == {1: 0.0, 3: 0.5, 5: 1.0}
    assert faces.top_shares(Fixed(), scores, torch.tensor([4, 5])) == {1: 0.0, 3: 0.0, 5: 0.5}
    sure = faces.mean_confidence(Fixed(), torch.tensor([[0.0, math.log(3)], [0.0, 0.0]]))
    assert sure == pytest.approx((0.75 + 0.5) / 2)


def test_a_dense_layer_appends_and_the_recogniser_is_its_seed():
    layer = recognisers.DenseLayer(3, 2).eval()
    inputs = torch.rand(1, 3, 4, 4)
    assert torch.equal(layer(inputs)[:, :3], inputs)
    assert layer(inputs).shape[1] == 5
    models = [recognisers.small_densenet(seed=seed, channels=1, side=9, classes=4) for seed in (0, 0, 1)]
    outputs = [model(torch.ones(2, 1, 9, 9)) for model in models]
    assert outputs[0].shape == (2, 4)
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_a_part_of_the_gradient_is_all_that_is_seen():
    usual: dict[str, Any] = {
        "model": network("lenet-dlg"),
        "data": "digits",
        "indices": [[5]],
        "attack": "dlg:steps=1,retries=0",
    }
    whole = partial.rebuild_from_part(names=[], **usual).values
    some = partial.rebuild_from_part(names=["conv1"], **usual).values
    assert whole["shared"] == [1.0]
    parameters = 12 * 25 + 12 + 2 * (12 * 12 * 25 + 12) + 48 * 10 + 10
    assert some["shared"] == [pytest.approx((12 * 25 + 12) / parameters)]
    assert some["psnr"] != whole["psnr"]


def test_directions_of_the_judges():
    rows = results(
        *(({"m": "a", "victim": v, "batch": b}, {"x": 1.0 + v, "y": 3.0 + v + b / 10}) for v in (0, 1) for b in (1, 4)),
        *(({"m": "b", "victim": v, "batch": b}, {"x": 0.5 + v, "y": 0.0}) for v in (0, 1) for b in (1, 4)),
    )
    assert falls_short("x", 2.0, m="a")(rows).effect == pytest.approx(0.5)
    assert falls_short("x", 1.0, m="a")(rows).outcome == "does not hold"
    assert rises("x", "y", unit="", m="a")(rows).effect == pytest.approx(2.25)
    assert rises("y", "x", unit="", m="a")(rows).outcome == "does not hold"
    assert stalls("x", "y", 3.0, m="a")(rows).effect == pytest.approx(0.75)
    assert stalls("x", "y", 1.0, m="a")(rows).outcome == "does not hold"
    once = above_by_unit("x", {"m": "a"}, {"m": "b"}, per=("victim",))(rows)
    assert (once.n, once.outcome) == (2, "holds")
    assert once.effect == pytest.approx(0.5)
    assert unpaired_above("x", {"m": "a"}, {"m": "b"})(rows).effect == pytest.approx(0.5)
    assert unpaired_above("x", {"m": "b"}, {"m": "a"})(rows).outcome == "does not hold"


def test_shares_of_pictures():
    rows = results(
        *(({"m": "a", "batch": 128, "victim": v}, {"ssim": [[0.1, 0.3, 0.5, 0.9]]}) for v in (0, 1)),
        *(({"m": "b", "batch": 128, "victim": v}, {"ssim": [[0.1, 0.1, 0.1, 0.9]]}) for v in (0, 1)),
    )
    assert share_exceeds("ssim", 0.2, {"m": "a"}, {"m": "b"})(rows).effect == pytest.approx(0.5)
    assert some_fail(128)(rows.where(m="a")).effect == pytest.approx(0.25)
    assert some_fail(256)(rows).outcome == "not testable"


def test_a_success_curve_counts_on_the_right_side():
    values = [0.1, 0.2, 0.6]
    similar = dict(success_curve(values, low=0.0, high=1.0, below=False))
    assert (similar[0.0], similar[0.5], similar[1.0]) == (1.0, pytest.approx(1 / 3), 0.0)
    errors = dict(success_curve(values, low=0.0, high=1.0, below=True))
    assert (errors[0.0], errors[0.5], errors[1.0]) == (0.0, pytest.approx(2 / 3), 1.0)


@pytest.mark.parametrize("name", SHARING)
def test_a_recipe_that_shares_has_the_other_ones_cells(name):
    known = find_recipes()
    recipe = known[name]
    for scale in ("cpu", "paper"):
        own = [cell.spec for cell in recipe.cells(recipe.scale(scale))]
        owner = known[recipe.shares]
        others = [cell.spec for cell in owner.cells(owner.scale(scale))]
        assert all(spec in others for spec in own[:5] + own[-5:])


def test_recognisers_never_see_an_attacked_face():
    recipe = find_recipes()["thesis/table-3-15"]
    for cell in recipe.cells(recipe.scale("cpu")):
        spec: Any = cell.spec
        assert {one["split"] for one in spec["reads_data"] if "indices" in one} == {"test"}
        for judge in spec["settings"]["recognisers"].values():
            # A training reads the part `train` alone.
            assert judge["trained"]["data"] == "olivetti"
            assert judge["trained"].get("test_data") is None


def test_smaller_batches_are_beginnings_of_larger_ones():
    recipe = find_recipes()["thesis/table-3-6"]
    for victim in range(4):
        cells = [cell for cell in recipe.cells(recipe.scale("cpu")) if cell.tags["victim"] == victim]
        largest = max((cell.victims[0] for cell in cells), key=len)
        assert all(cell.victims[0] == largest[: len(cell.victims[0])] for cell in cells)
        assert len(largest) == 32
