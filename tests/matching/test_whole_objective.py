"""The gradient an optimiser follows: weighted distances of all parts plus weighted penalties, by finite differences."""

from __future__ import annotations

import pytest
import torch

from leakscope.matching.candidates import LATENT, Pixels
from leakscope.matching.distances import SquaredL2
from leakscope.matching.objective import Objective
from leakscope.matching.optimisers import Adam
from leakscope.matching.penalties import BatchNormPrior, InputNorm, LatentMoments, TotalVariation, Trial
from leakscope.matching.problem import Part, Problem
from leakscope.matching.replays import OneGradient
from leakscope.networks import norm_statistics
from leakscope.rng import generator, normal, uniform
from tiny import batch_of, convolutional, dense, seen_of


def problem_of(parts, *penalties) -> Problem:
    return Problem(parts, Pixels(box=False), OneGradient(), penalties, Adam(), steps=1)


def gradient_of(problem: Problem, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return Objective(problem, labels, groups=len(images))({"inputs": images}).gradient["inputs"]


def setting():
    batch = batch_of([1, 3])
    seen = seen_of(dense(), batch)
    images = uniform((1, *batch.inputs.shape), generator(5), like=batch.inputs)
    return seen, images, batch.targets[None]


def slope_of(penalty, images, labels, model) -> torch.Tensor:
    x = images.clone().requires_grad_()
    return torch.autograd.grad(penalty.value(Trial(x, x, labels, model)).sum(), x)[0]


@pytest.mark.parametrize("penalty", [TotalVariation(0.7), InputNorm(0.3)], ids=lambda one: type(one).__name__)
def test_an_absolute_penalty_is_added_with_its_weight(penalty):
    seen, images, labels = setting()
    part = Part([seen], SquaredL2())
    alone = gradient_of(problem_of((part,)), images, labels)
    found = gradient_of(problem_of((part,), penalty), images, labels)
    expected = alone + penalty.weight * slope_of(penalty, images, labels, seen.model)
    torch.testing.assert_close(found, expected)


def test_a_relative_penalty_has_the_length_of_the_matching_gradient_times_its_weight():
    seen, images, labels = setting()
    part = Part([seen], SquaredL2())
    alone = gradient_of(problem_of((part,)), images, labels)
    added = gradient_of(problem_of((part,), TotalVariation(0.5, relative=True)), images, labels) - alone
    assert float(added.norm()) == pytest.approx(0.5 * float(alone.norm()), rel=1e-6)
    slope = slope_of(TotalVariation(0.5), images, labels, seen.model)
    assert float(torch.cosine_similarity(added.flatten(), slope.flatten(), dim=0)) == pytest.approx(1.0)


def test_parts_count_by_their_weights_and_reach_their_own_examples():
    seen, images, labels = setting()
    other = seen_of(dense(seed=1), batch_of([3], seed=2))
    first, second = Part([seen], SquaredL2()), Part([other], SquaredL2(), torch.tensor([1]), (0.25,))
    joint = gradient_of(problem_of((first, second)), images, labels)
    expected = gradient_of(problem_of((first,)), images, labels).clone()
    alone = Part([other], SquaredL2())
    expected[:, 1:] += 0.25 * gradient_of(problem_of((alone,)), images[:, 1:], labels[:, 1:])
    torch.testing.assert_close(joint, expected, rtol=1e-5, atol=1e-9)


def test_the_input_norm_is_the_mean_square():
    x = torch.tensor([[[[[3.0, 0.0], [0.0, 1.0]]]]])
    assert float(InputNorm(1.0).value(Trial(x, x, torch.zeros(1, 1), dense()))) == pytest.approx(10 / 4)


def test_latent_moments_are_the_divergence_from_a_standard_normal():
    latents = 2.0 * normal((1, 1, 5000), generator(0)).double() + 0.5
    mean, variance = float(latents.mean()), float(latents.var(correction=0))
    trial = Trial(latents, latents, torch.zeros(1, 1), dense(), variables={LATENT: latents})
    normals = (torch.distributions.Normal(mean, variance**0.5), torch.distributions.Normal(0.0, 1.0))
    expected = float(torch.distributions.kl_divergence(*normals))
    assert float(LatentMoments().value(trial)) == pytest.approx(expected, rel=1e-5)


def test_the_batch_norm_prior_adds_the_distances_of_means_and_of_variances():
    model = convolutional(norm=True).eval()
    seen = seen_of(model, batch_of([1, 2]), scenario="C")
    images = batch_of([1, 2], seed=4).inputs[None]
    mean, variance = (value.detach() for value in norm_statistics(seen.model, images[0])["1"])
    # The running statistics of an untrained network are 0 and 1.
    expected = float(mean.norm() + (variance - 1).norm())
    trial = Trial(images, images, torch.zeros(1, 2, dtype=torch.long), seen.model, seen=(seen,))
    assert float(BatchNormPrior(1.0).value(trial).detach()) == pytest.approx(expected, rel=1e-6)
