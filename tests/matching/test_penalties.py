from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakscope.matching.penalties import InputNorm, LabelTerm, TotalVariation, Trial
from leakscope.rng import generator


def trial(x: torch.Tensor) -> Trial:
    return Trial(x, x, torch.zeros(x.shape[:2], dtype=torch.long), nn.Identity())


@pytest.mark.parametrize("penalty", [TotalVariation(1.0), InputNorm(1.0)], ids=lambda p: type(p).__name__)
def test_a_penalty_is_one_differentiable_number_per_group(penalty):
    x = (2 * torch.rand(2, 2, 1, 4, 3, generator=generator(0), dtype=torch.float64) - 0.5).requires_grad_()
    assert penalty.value(trial(x)).shape == (2,)
    assert torch.autograd.gradcheck(lambda value: penalty.value(trial(value)), x)
    torch.testing.assert_close(penalty.value(trial(x[1:]))[0], penalty.value(trial(x))[1])


def test_total_variation_by_hand_and_independent_of_size():
    steps = torch.tensor([[0.0, 1.0], [0.0, 3.0]])[None, None, None]
    assert float(TotalVariation(1.0).value(trial(steps))) == pytest.approx((1 + 3) / 2 + (0 + 2) / 2)
    ramps = [torch.arange(side).float().expand(1, 1, 1, side, side) for side in (4, 16)]
    assert [float(TotalVariation(1.0).value(trial(ramp))) for ramp in ramps] == [1.0, 1.0]
    assert float(TotalVariation(1.0).value(trial(torch.full((1, 1, 3, 5, 5), 0.3)))) == 0


@pytest.mark.parametrize(
    ("shape", "weight"),
    [((1, 3, 32, 32), 0.5), ((4, 3, 32, 32), 1.0), ((4, 1, 8, 8), 0.25), ((1, 3, 224, 224), 0.5), ((4, 7), 0.5)],
)
def test_a_fitted_weight_grows_with_the_batch_and_falls_with_small_pictures(shape, weight):
    fitted = TotalVariation(0.5, relative=True, fitted=True)
    assert fitted.weight_at(trial(torch.zeros(1, *shape))) == pytest.approx(weight)
    assert replace(fitted, fitted=False).weight_at(trial(torch.zeros(1, *shape))) == 0.5
    assert InputNorm(0.3).weight_at(trial(torch.zeros(1, *shape))) == 0.3


def test_vectors_have_no_variation_and_still_a_gradient():
    x = torch.rand(2, 3, 7, generator=generator(0)).requires_grad_()
    value = TotalVariation(1.0).value(trial(x))
    assert value.tolist() == [0.0, 0.0]
    assert torch.autograd.grad(value.sum(), x)[0].abs().max() == 0


def labelled(logits: list[list[float]], labels: list[int]) -> Trial:
    """One group of examples whose logits are the numbers themselves."""
    x = torch.tensor([logits], dtype=torch.float64)
    return Trial(x, x, torch.tensor([labels]), nn.Identity())


def test_the_label_term_is_the_mean_squared_distance_of_predictions_from_labels():
    # Two even classes: ‖(½, ½) − (1, 0)‖² = ½; a sure and right one: 0; a sure and wrong one: 2.
    term = LabelTerm(1.0)
    assert float(term.value(labelled([[0.0, 0.0]], [0]))) == pytest.approx(0.5)
    assert float(term.value(labelled([[50.0, -50.0]], [0]))) == pytest.approx(0.0, abs=1e-12)
    assert float(term.value(labelled([[50.0, -50.0]], [1]))) == pytest.approx(2.0)
    assert float(term.value(labelled([[0.0, 0.0], [50.0, -50.0]], [0, 1]))) == pytest.approx((0.5 + 2) / 2)


def test_descending_the_label_term_makes_the_label_likelier():
    x = torch.zeros(1, 1, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(LabelTerm(1.0).value(Trial(x, x, torch.tensor([[2]]), nn.Identity())).sum(), x)
    after = (x - 0.1 * gradient).softmax(-1)[0, 0]
    assert float(after[2].detach()) > 1 / 3
