from __future__ import annotations

import torch

from leakscope.attacks.closed.pooling.maxima import known_maximum
from leakscope.rng import generator, normal

_SHARP = torch.full((1,), 1e-3).double()


def _rejected(mean: torch.Tensor, covariance: torch.Tensor, largest: float, width: float) -> torch.Tensor:
    """Draws whose largest entry lies within `width` of `largest`."""
    like = torch.empty(0, dtype=torch.float64)
    drawn = mean + normal((400_000, len(mean)), generator(3, "draws"), like=like) @ torch.linalg.cholesky(covariance).T
    return drawn[(drawn.amax(1) - largest).abs() < width]


def test_moments_and_odds_are_those_of_draws_with_that_maximum():
    mean = torch.tensor([0.1, 0.4, -0.3, 0.2], dtype=torch.float64)
    mixing = torch.tensor(
        [[1.0, 0.8, 0.5, 0.3], [0.0, 0.6, 0.4, 0.5], [0.0, 0.0, 0.7, 0.2], [0.0, 0.0, 0.0, 0.5]]
    ).double()
    covariance = mixing.T @ mixing
    for largest in (-0.5, 0.5, 1.5):
        kept = _rejected(mean, covariance, largest, 0.02)
        found = known_maximum(
            mean[None],
            covariance[None],
            largest=torch.tensor([largest]).double(),
            hints=torch.zeros(1, 4).double(),
            tolerance=_SHARP,
        )
        shares = torch.bincount(kept.argmax(1), minlength=4) / len(kept)
        assert torch.allclose(found.scores.softmax(1)[0], shares.double(), atol=0.03)
        assert torch.allclose(found.mean[0], kept.mean(0), atol=0.04)
        assert torch.allclose(found.covariance[0], torch.cov(kept.T), atol=0.06)


def test_a_hint_moves_the_moments_and_stays_out_of_the_scores():
    mean, covariance = torch.zeros(1, 4).double(), torch.eye(4).double()[None]
    hints = torch.tensor([[15.0, 0.0, 0.0, 0.0]]).double()
    largest = torch.tensor([1.0]).double()
    told = known_maximum(mean, covariance, largest=largest, hints=hints, tolerance=_SHARP)
    untold = known_maximum(mean, covariance, largest=largest, hints=0 * hints, tolerance=_SHARP)
    assert torch.equal(told.scores, untold.scores)
    assert abs(float(told.mean[0, 0]) - 1) < 1e-3
    assert float(untold.mean[0, 0]) < 0.5


def test_a_maximum_far_in_the_tail_gives_finite_moments():
    mean, covariance = torch.full((1, 4), 50.0).double(), 0.01 * torch.eye(4).double()[None]
    found = known_maximum(
        mean, covariance, largest=torch.tensor([0.0]).double(), hints=torch.zeros(1, 4).double(), tolerance=_SHARP
    )
    assert bool(torch.isfinite(found.mean).all())
    assert bool(torch.isfinite(found.covariance).all())


def test_a_maximum_that_is_hardly_known_changes_its_own_window_alone():
    mean, covariance = torch.zeros(2, 4).double(), torch.eye(4).double().expand(2, 4, 4)
    found = known_maximum(
        mean,
        covariance,
        largest=torch.tensor([3.0, 3.0]).double(),
        hints=torch.zeros(2, 4).double(),
        tolerance=torch.tensor([1e-3, 1e6]).double(),
    )
    assert float(found.mean[0].max()) > 0.6
    assert float(found.mean[1].abs().max()) < 0.05
    assert torch.allclose(found.covariance[1], covariance[1], atol=0.1)
