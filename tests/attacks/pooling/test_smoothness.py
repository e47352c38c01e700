from __future__ import annotations

from dataclasses import replace

import torch

from leakscope.attacks.closed.pooling.smoothness import natural
from leakscope.rng import generator

_LIKE = torch.empty(0)


def test_the_precision_is_the_inverse_of_the_covariance_of_what_is_drawn():
    prior = natural((1, 4, 5), (0.0, 1.0), like=_LIKE)
    drawn = prior.sample(200_000, generator(0, "draws"), bounds=(-100.0, 100.0)).flatten(1)
    whitened = (drawn - prior.mean) @ torch.linalg.cholesky(prior.precision())
    assert torch.allclose(torch.cov(whitened.T), torch.eye(20).double(), atol=0.02)


def test_what_a_seed_draws_does_not_depend_on_the_basis_that_a_library_returns():
    prior = natural((3, 4, 4), (0.0, 1.0), like=_LIKE)
    signs = torch.where(torch.arange(16) % 3 == 0, -1.0, 1.0).double()
    # Waves across and waves down have the same power: any two that span the same plane will do.
    across, down = prior.waves[:, -2], prior.waves[:, -3]
    turned = prior.waves * signs
    turned[:, -2], turned[:, -3] = 0.6 * across + 0.8 * down, 0.8 * across - 0.6 * down
    assert torch.allclose(prior.power[:, -2], prior.power[:, -3])
    other = replace(prior, waves=turned)
    drawn = [each.sample(5, generator(0, "draws"), bounds=(0.0, 1.0)) for each in (prior, other)]
    assert torch.allclose(drawn[0], drawn[1], atol=1e-12)
    assert float(drawn[0].std()) > 0.1


def test_neighbours_and_colours_vary_together():
    covariance = torch.linalg.inv(natural((3, 6, 6), (0.0, 1.0), like=_LIKE).precision())
    spread = covariance.diagonal().sqrt()
    alike = covariance / spread[:, None] / spread[None, :]
    near, far, colours = float(alike[0, 1]), float(alike[0, 35]), float(alike[0, 36])
    assert near > 0.8 > 0.5 > far
    assert colours > 0.85


def test_the_range_of_the_data_scales_everything():
    unit, wide = natural((1, 4, 4), (0.0, 1.0), like=_LIKE), natural((1, 4, 4), (-1.0, 3.0), like=_LIKE)
    assert torch.allclose(wide.precision() * 16, unit.precision())
    assert torch.allclose(wide.mean, 4 * unit.mean - 1)


def test_flat_places_are_expected_to_stay_flat_and_busy_ones_busy():
    prior = natural((1, 12, 12), (0.0, 1.0), like=_LIKE)
    image = torch.full((12, 12), 0.45).double()
    image[8:, 8:] += 0.3 * ((torch.arange(4)[:, None] + torch.arange(4)) % 2)
    adapted = prior.adapt(image.flatten(), torch.zeros(144, 144).double())
    detail = adapted.detail.reshape(12, 12)
    assert float(detail[:4, :4].min()) > 1 > float(detail[9:, 9:].max())
    assert torch.equal(prior.detail, torch.ones_like(prior.detail))
