from __future__ import annotations

import pickle

import pytest
import torch

from leakscope import rng
from leakscope.errors import BadInputError, UnsuitableError, UsageError
from leakscope.priors import Prior, describe, recognise, smooth_prior
from leakscope.priors.convolutional import ConvDecoder, initialise

LIKE = torch.empty(0)


def small(shape=(1, 12, 12), *, seed=0):
    decoder = ConvDecoder(shape, latent=6, width=4)
    return Prior(decoder, initialise(decoder.shapes(), rng.generator(seed)), "a test")


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 25, 25), (1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 10, 20)])
def test_the_trainable_decoder_fits_any_size(shape):
    prior = small(shape).at(shape, like=LIKE)
    latents = prior.sample(3, rng.generator(1))
    images = prior.decode(latents)
    assert images.shape == (3, *shape)
    assert 0 <= float(images.min()) < float(images.max()) <= 1
    decoder = prior.architecture
    assert isinstance(decoder, ConvDecoder)
    mean, spread = decoder.encode(initialise(decoder.encoder_shapes(), rng.generator(2)), images)
    assert mean.shape == spread.shape == (3, 6)


def test_a_prior_is_its_content():
    prior, copy, other = small(), pickle.loads(pickle.dumps(small())), small(seed=1)
    assert prior == copy
    assert hash(prior) == hash(copy)
    assert repr(prior) == repr(copy)
    assert prior != other
    assert repr(prior) != repr(other)
    assert prior != "prior"


def test_where_a_prior_comes_from_plays_no_part():
    prior = small()
    assert prior == Prior(prior.architecture, prior.weights, "elsewhere")


def test_the_same_seed_gives_the_same_latents():
    prior = small()
    first, again = (prior.sample(4, rng.generator(7)) for _ in range(2))
    assert torch.equal(first, again)
    assert prior.sample(2, rng.generator(7), like=torch.empty(0, dtype=torch.float64)).dtype == torch.float64


def test_weights_can_be_given_and_differentiated():
    prior = small()
    weights = {name: value.clone().requires_grad_() for name, value in prior.weights.items()}
    images = prior.decode(torch.ones(1, 6), weights)
    grads = torch.autograd.grad(images.sum(), list(weights.values()))
    assert torch.equal(images.detach(), prior.decode(torch.ones(1, 6)))
    assert all(float(grad.abs().max()) > 0 for grad in grads)


def test_placing_a_prior_converts_and_keeps_its_own_weights():
    prior = small()
    placed = prior.at((1, 12, 12), like=torch.empty(0, dtype=torch.float64))
    assert placed.decode(placed.sample(1, rng.generator(0), like=torch.empty(0, dtype=torch.float64))).dtype == (
        torch.float64
    )
    assert prior.weights["out.bias"].dtype == torch.float32
    assert placed is prior.at((1, 12, 12), like=torch.empty(0, dtype=torch.float64)), "fitted once, not at every step"


def test_a_trained_prior_is_refused_for_another_size():
    with pytest.raises(UnsuitableError, match="train one for that size"):
        small().at((1, 14, 14), like=LIKE)


def test_weights_of_another_decoder_are_refused():
    prior = small()
    missing = {name: value for name, value in prior.weights.items() if name != "out.bias"}
    with pytest.raises(BadInputError, match=r"'out\.bias' is missing"):
        Prior(prior.architecture, missing)
    with pytest.raises(BadInputError, match="'extra' is unknown"):
        Prior(prior.architecture, {**prior.weights, "extra": torch.zeros(1)})
    with pytest.raises(BadInputError, match=r"of shape \[1\], got torch.float32 of \[2\]"):
        Prior(prior.architecture, {**prior.weights, "out.bias": torch.zeros(2)})
    with pytest.raises(BadInputError, match="NaN or Inf"):
        Prior(prior.architecture, {**prior.weights, "out.bias": torch.tensor([torch.nan])})


def test_slow_cosines_hold_every_slow_image_and_no_fast_one():
    prior = smooth_prior(cutoff=3).at((1, 16, 20), like=torch.empty(0, dtype=torch.float64))
    rows, columns = prior.weights["rows"], prior.weights["columns"]
    wanted = torch.randn(3, 3, dtype=torch.float64, generator=rng.generator(0))
    image = (rows @ wanted @ columns.T).sigmoid()[None, None]
    assert torch.allclose(prior.decode((wanted / prior.weights["scale"])[None, None]), image)
    stripes = torch.cos(torch.arange(20.0, dtype=torch.float64) * torch.pi)
    assert float((columns.T @ stripes).abs().max()) < 1.5, "alternating columns are out of reach"


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (2, 5, 9)])
def test_samples_of_slow_cosines_are_pictures_and_not_grey(shape):
    prior = smooth_prior().at(shape, like=LIKE)
    images = prior.decode(prior.sample(20, rng.generator(0)))
    assert images.shape == (20, *shape)
    assert 0.1 < float(images.std()) < 0.4


def test_slow_cosines_are_for_images_only():
    with pytest.raises(UnsuitableError, match=r"needs inputs \[C, H, W\]"):
        smooth_prior().at((40,), like=LIKE)
    with pytest.raises(UnsuitableError, match="cutoff ≥ 1"):
        smooth_prior(cutoff=0)


def test_a_manifest_describes_the_whole_prior():
    prior = small()
    tensors, metadata = describe(prior)
    again = recognise(tensors, metadata)
    assert again == prior
    assert again.about == "a test"


@pytest.mark.parametrize(
    ("old", "new", "needle"),
    [
        ('"format":1', '"format":2', "'format'"),
        ('"latent":6', '"latent":0', "'latent'"),
        ('"latent":6', '"latent":7', "of shape"),
        ("[1,12,12]", "[1,12,4096]", "1 to 1024 pixels"),
        ("convolutional", "pickle", "'decoder'"),
    ],
)
def test_a_manifest_that_lies_is_refused(old, new, needle):
    tensors, metadata = describe(small())
    (key,) = metadata
    assert old in metadata[key]
    with pytest.raises(BadInputError, match=needle):
        recognise(tensors, {key: metadata[key].replace(old, new)})


def test_tensors_that_are_no_prior_are_refused():
    with pytest.raises(BadInputError, match="leakscope prior train"):
        recognise({"fc.weight": torch.zeros(2, 2)}, {})
    with pytest.raises(UsageError, match="only trained priors"):
        describe(smooth_prior())


def test_slow_cosines_are_orthogonal_and_of_mean_square_one():
    prior = smooth_prior(cutoff=5).at((1, 16, 20), like=torch.empty(0, dtype=torch.float64))
    for side, length in (("rows", 16), ("columns", 20)):
        waves = prior.weights[side]
        torch.testing.assert_close(waves.T @ waves / length, torch.eye(5, dtype=torch.float64))
