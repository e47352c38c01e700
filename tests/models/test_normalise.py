from __future__ import annotations

import pytest
import torch

from leakscope import models
from leakscope.errors import UsageError
from leakscope.input_values import CONSTANTS


@pytest.mark.parametrize("name", models.names())
def test_normalise_is_the_first_layer_and_holds_no_parameters(name: str) -> None:
    model = models.build(name)
    first = next(model.children())
    assert isinstance(first, models.Normalise)
    assert not list(first.parameters())
    assert set(dict(first.named_buffers())) == {"mean", "std"}


def test_without_constants_the_input_passes_bit_for_bit() -> None:
    images = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    first = models.build("mlp", image_size=4).get_submodule("normalise")
    assert torch.equal(first(images), images)


def test_named_constants_are_used() -> None:
    model = models.build("mlp", normalise="cifar10")
    assert model.get_buffer("normalise.mean").tolist() == pytest.approx([0.49147, 0.48226, 0.44677])
    assert model.get_buffer("normalise.std").tolist() == pytest.approx([0.24703, 0.24349, 0.26159])


def test_own_constants_normalise_per_channel() -> None:
    model = models.build("mlp", in_channels=2, image_size=1, normalise=((0.5, 0.0), (0.25, 2.0)))
    out = model.get_submodule("normalise")(torch.ones(1, 2, 1, 1))
    assert out.flatten().tolist() == [2.0, 0.5]


def test_one_gray_constant_serves_three_channels() -> None:
    model = models.build("lenet-grnn", normalise="mnist")
    assert model.get_buffer("normalise.mean").tolist() == pytest.approx([0.1307] * 3)


def test_dtype_follows_the_model() -> None:
    model = models.build("mlp", image_size=4, normalise="cifar10").double()
    assert model(torch.rand(1, 3, 4, 4, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(
    ("normalise", "channels", "message"),
    [
        ("cifar", 3, "Did you mean 'cifar10'"),
        ("cifar10", 1, "3 means and 3 deviations for 1 channels"),
        (((0.5,), (0.0,)), 3, "deviations above 0"),
        (((0.5, 0.5), (1.0,)), 2, "2 means and 1 deviations"),
        (0.5, 3, "must be a name"),
    ],
)
def test_wrong_constants_are_usage_errors(normalise: object, channels: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        models.build("mlp", in_channels=channels, normalise=normalise)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [
        ("cifar10", (0.49147, 0.48226, 0.44677), (0.24703, 0.24349, 0.26159)),
        ("cifar100", (0.50716, 0.48669, 0.44120), (0.26733, 0.25644, 0.27615)),
        ("imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("mnist", (0.1307,), (0.3081,)),
        ("fashion-mnist", (0.1307,), (0.3081,)),
        ("words-plain", (0.5,), (0.5,)),
        ("words-scene", (0.5,), (0.5,)),
        ("iiit5k", (0.5,), (0.5,)),
    ],
)
def test_constants_are_the_published_ones_of_each_set(
    name: str, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    assert CONSTANTS[name] == (mean, std)
