from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakscope import rng
from leakscope.errors import UnsuitableError
from leakscope.matching.candidates import Latent, TunedWeights
from leakscope.matching.candidates.pixels import stack_groups
from leakscope.matching.penalties import LatentMoments, Trial
from leakscope.priors import Prior, smooth_prior
from leakscope.priors.convolutional import ConvDecoder, initialise
from tiny import batch_of, dense, seen_of

SEEN = seen_of(dense(), batch_of([1]))


def small():
    decoder = ConvDecoder((1, 6, 6), latent=5, width=3)
    return Prior(decoder, initialise(decoder.shapes(), rng.generator(0)))


PRIORS = {"trained": small(), "smooth": smooth_prior(cutoff=3)}


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_images_come_in_groups_and_in_the_dtype_of_the_update(prior):
    candidate = Latent(prior)
    groups = stack_groups([candidate.start(SEEN, 2, rng.generator(i)) for i in range(3)])
    images = candidate.decode(SEEN, groups)
    assert images.shape == (3, 2, 1, 6, 6)
    assert images.dtype == torch.float64
    alone = candidate.decode(SEEN, {name: value[1:2] for name, value in groups.items()})
    torch.testing.assert_close(alone[0], images[1])


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("count", [1, 2])
def test_tuned_weights_start_as_the_prior_and_each_image_has_its_own(prior, count):
    latents = Latent(prior).start(SEEN, count, rng.generator(5))["latent"]
    candidate = TunedWeights(prior, latents)
    start = stack_groups([candidate.start(SEEN, count, rng.generator(0))] * 2)
    images = candidate.decode(SEEN, start)
    torch.testing.assert_close(images[1], Latent(prior).decode(SEEN, {"latent": latents[None]})[0])
    leaves = {name: value.clone().requires_grad_() for name, value in start.items()}
    chosen = candidate.decode(SEEN, leaves)[1, -1].sum()
    grads = torch.autograd.grad(chosen, [v for name, v in leaves.items() if name.startswith("weight.")])
    for grad in grads:
        assert float(grad[0].abs().max()) == 0.0
        assert count == 1 or float(grad[1, 0].abs().max()) == 0.0
        assert float(grad[1, -1].abs().max()) > 0.0


def test_reach_bounds_what_the_decoder_is_fed():
    candidate = Latent(small(), reach=2.0)
    fed = candidate.latents({"latent": torch.tensor([[[-50.0, 0.01, 50.0]]])})
    torch.testing.assert_close(fed, torch.tensor([[[-2.0, 0.01, 2.0]]]), atol=1e-5, rtol=0)


def test_images_lie_in_the_range_of_the_data():
    latents = {"latent": rng.normal((1, 3, 5), rng.generator(2), like=torch.empty(0, dtype=torch.float64))}
    plain = Latent(small()).decode(SEEN, latents)
    shifted = Latent(small()).decode(replace(SEEN, bounds=(-1.0, 1.0)), latents)
    torch.testing.assert_close(shifted, 2 * plain - 1)


def test_starts_are_as_named():
    uniform = Latent(small(), begin="uniform").start(SEEN, 50, rng.generator(0))["latent"]
    assert 0 <= float(uniform.min()) < 0.1 < 0.9 < float(uniform.max()) < 1
    assert float(Latent(small(), begin="mean").start(SEEN, 2, rng.generator(0))["latent"].abs().max()) == 0.0


def test_a_prior_of_another_size_is_refused_before_any_compute():
    with pytest.raises(UnsuitableError, match=r"makes images of \[1, 6, 6\]"):
        Latent(small()).start(seen_of(_wide(), batch_of([1], shape=(1, 8, 8))), 1, rng.generator(0))


def _wide():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4)).double()


def test_the_moments_of_a_typical_latent_cost_nothing():
    typical = rng.normal((2, 1, 4_000), rng.generator(0))
    typical = (typical - typical.mean(-1, keepdim=True)) / typical.std(-1, keepdim=True, correction=0)
    odd = torch.stack([typical[0], 2 * typical[1] + 3])
    images = torch.zeros(2, 1, 1, 6, 6)
    value = LatentMoments().value(Trial(images, images, torch.zeros(2, 1), dense(), variables={"latent": odd}))
    assert float(value[0]) == pytest.approx(0, abs=1e-5)
    # ½ (μ² + σ² − 1 − log σ²) at μ = 3, σ = 2.
    assert float(value[1]) == pytest.approx(0.5 * (9 + 4 - 1 - 1.3862944), rel=1e-4)
