from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from leakscope.matching.candidates import Pixels
from leakscope.matching.presets import held_preset, schedule_preset
from leakscope.models import build
from leakscope.networks import find_normalisation
from leakscope.observation.observe import observe
from leakscope.rng import generator
from tiny import batch_of, dense, seen_of, shared


def normalised_seen(bounds=(0.0, 1.0)):
    constants = ([0.2, 0.4, 0.6], [0.1, 0.3, 0.5])
    model = build("mlp", num_classes=3, in_channels=3, image_size=4, hidden=[5], normalise=constants).double()
    batch = batch_of([1], shape=(3, 4, 4))
    return replace(observe(model, shared(model, batch), scenario="A", truth=batch), bounds=bounds)


def test_decoding_undoes_the_models_normalisation():
    seen, pixels = normalised_seen(), Pixels(normalised=True)
    images = torch.rand(2, 1, 3, 4, 4, generator=generator(0), dtype=torch.float64)
    constants = find_normalisation(seen.model, seen.input_shape)
    assert constants is not None
    mean, std = constants
    coordinates = (images - mean.reshape(-1, 1, 1)) / std.reshape(-1, 1, 1)
    torch.testing.assert_close(pixels.decode(seen, {"inputs": coordinates}), images)
    assert Pixels().decode(seen, {"inputs": coordinates}) is coordinates


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 3.0)])
def test_projection_ends_inside_the_box_and_is_idempotent(normalised, bounds):
    seen, pixels = normalised_seen(bounds), Pixels(normalised=normalised)
    wild = 50 * torch.randn(2, 1, 3, 4, 4, generator=generator(1), dtype=torch.float64)
    inside = pixels.project(seen, {"inputs": wild})
    images = pixels.decode(seen, inside)
    assert float(images.min()) == pytest.approx(bounds[0], abs=1e-9)
    assert float(images.max()) == pytest.approx(bounds[1], abs=1e-9)
    assert torch.equal(pixels.project(seen, inside)["inputs"], inside["inputs"])


def test_without_a_box_nothing_is_projected():
    wild = {"inputs": torch.full((1, 1, 1, 6, 6), 9.0)}
    seen = seen_of(dense(), batch_of([1]))
    assert Pixels(box=False).project(seen, wild) is wild
    assert Pixels().project(replace(seen, bounds=None), wild) is wild


@pytest.mark.parametrize("begin", ["normal", "uniform", "grey"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_starts_have_the_observations_shape_and_dtype_and_depend_on_the_seed(begin, dtype):
    seen = seen_of(dense(dtype=dtype), batch_of([1], dtype=dtype))
    first, again, other = (Pixels(begin=begin).start(seen, 3, generator(seed))["inputs"] for seed in (1, 1, 2))
    assert first.shape == (3, 1, 6, 6)
    assert first.dtype == dtype
    assert torch.equal(first, again)
    assert torch.equal(first, other) is (begin == "grey")


def test_uniform_and_grey_starts_are_valid_images_also_in_normalised_coordinates():
    seen = normalised_seen((-1.0, 3.0))
    for begin in ("uniform", "grey"):
        pixels = Pixels(begin=begin, normalised=True)
        images = pixels.decode(seen, pixels.start(seen, 4, generator(0)))
        assert float(images.min()) >= -1 - 1e-9
        assert float(images.max()) <= 3 + 1e-9
        assert float(images.mean()) == pytest.approx(1.0, abs=0.3)


def test_a_model_without_constants_has_none():
    seen = seen_of(dense(), batch_of([1]))
    assert find_normalisation(seen.model, seen.input_shape) is None
    plain = nn.Sequential(nn.Flatten(), nn.Linear(36, 4)).double()
    coordinates = torch.rand(1, 1, 1, 6, 6).double()
    assert torch.equal(
        Pixels(normalised=True).decode(seen_of(plain, batch_of([1])), {"inputs": coordinates}), coordinates
    )


@pytest.mark.parametrize("identity", [False, True], ids=["no layer", "a layer that changes nothing"])
def test_an_assumed_spread_gives_coordinates_the_same_meaning_without_a_normalising_layer(identity):
    constants = ([0.0] * 3, [1.0] * 3)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).double()
    model = (
        build("mlp", num_classes=3, in_channels=3, image_size=4, hidden=[5], normalise=constants).double()
        if identity
        else plain
    )
    seen = replace(seen_of(model, batch_of([1], shape=(3, 4, 4))), bounds=(-1.0, 3.0))
    pixels = Pixels(normalised=True, spread=0.25, deviation=0.2)
    coordinates = torch.tensor([-2.0, 0.0, 1.0, 2.0], dtype=torch.float64).expand(1, 1, 3, 4, 4)
    # The middle of the range is 1, a quarter of it 1.
    assert torch.equal(pixels.decode(seen, {"inputs": coordinates}), coordinates + 1)
    wild = pixels.project(seen, {"inputs": 50 * coordinates})
    assert (float(wild["inputs"].min()), float(wild["inputs"].max())) == (-2.0, 2.0)
    start = pixels.start(seen, 500, generator(0))["inputs"]
    assert float(start.std()) == pytest.approx(0.2, rel=0.02)
    assert torch.equal(Pixels(normalised=True).decode(seen, {"inputs": coordinates}), coordinates)


def test_the_models_own_constants_come_before_an_assumed_spread():
    seen, coordinates = normalised_seen(), torch.rand(1, 1, 3, 4, 4).double()
    with_spread, without = (Pixels(normalised=True, spread=spread) for spread in (0.25, None))
    assert torch.equal(*(one.decode(seen, {"inputs": coordinates}) for one in (with_spread, without)))
    unbounded = replace(seen_of(dense(), batch_of([1])), bounds=None)
    values = torch.rand(1, 1, 1, 6, 6).double()
    assert torch.equal(with_spread.decode(unbounded, {"inputs": values}), values)


def test_only_leakscopes_own_schedules_assume_a_spread():
    for own in (schedule_preset("accelerated"), held_preset()):
        assert (own.candidate.spread, own.candidate.deviation) == (0.25, 0.2)
    assert schedule_preset("paper").candidate == Pixels(begin="normal", normalised=True)
