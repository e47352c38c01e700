from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from leakscope.matching.candidates import TRANSFORMS, Transformed
from leakscope.matching.distances import Cosine
from leakscope.matching.problem import PlainRoute
from leakscope.matching.replays import OneGradient
from leakscope.rng import generator, uniform
from leakscope.types import Batch
from tiny import dense, seen_of

LIKE = torch.empty(0, dtype=torch.float64)


def picture(side: int = 12, channels: int = 3) -> torch.Tensor:
    """Smooth, away from the ends of the range, so that enhancers do not saturate."""
    rows = torch.linspace(0, 1, side, dtype=torch.float64)
    waves = [torch.sin(3 * rows[:, None] + k) * torch.cos(4 * rows[None, :] - k) for k in range(channels)]
    return 0.5 + 0.2 * torch.stack(waves)[None]


def apply(name: str, images: torch.Tensor, *parameters: float) -> torch.Tensor:
    rows = torch.tensor([parameters], dtype=images.dtype).expand(len(images), len(parameters))
    return TRANSFORMS[name].apply(images, rows)


# Staircases, whose derivative is that of the identity by decree.
STAIRS = ("posterise", "equalise")


@pytest.mark.parametrize("name", [n for n in TRANSFORMS if n not in ("solarise", "autocontrast", *STAIRS)])
def test_zero_leaves_the_picture_alone(name):
    images = picture()
    parameters = [0.0] * len(TRANSFORMS[name].start)
    torch.testing.assert_close(apply(name, images, *parameters), images, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_transformation_has_derivatives_in_picture_and_parameters(name):
    transform = TRANSFORMS[name]
    images = picture(side=6).requires_grad_()
    middle = [0.37 * low + 0.63 * high for low, high in zip(transform.low, transform.high, strict=True)]
    parameters = torch.tensor([middle], dtype=torch.float64).reshape(1, -1).requires_grad_()
    out = transform.apply(images, parameters)
    assert out.shape == images.shape
    weights = uniform(tuple(out.shape), generator(0), like=LIKE)
    grads = torch.autograd.grad((weights * out).sum(), (images, parameters), allow_unused=True)
    if name in STAIRS:
        torch.testing.assert_close(grads[0], weights)
        return
    assert float(grads[0].abs().sum()) > 0
    if transform.start:
        assert float(grads[1].abs().sum()) > 0
    if name not in ("solarise", "rotate", "rotate-grey", "shear-x", "shear-y", "zoom"):
        assert torch.autograd.gradcheck(lambda x: transform.apply(x, parameters.detach()), (images,))


@pytest.mark.parametrize(("name", "offset"), [("shift-x", (3, 0)), ("shift-y", (0, 3))])
def test_whole_pixels_are_moved_exactly_and_leave_black(name, offset):
    images = picture()
    moved = apply(name, images, 3 / 12)
    expected = torch.zeros_like(images)
    right, down = offset
    expected[..., down:, right:] = images[..., : 12 - down, : 12 - right]
    torch.testing.assert_close(moved, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(apply("shift", images, right / 12, down / 12), expected, rtol=0, atol=1e-12)


def eight_bit(images: torch.Tensor) -> Image.Image:
    return Image.fromarray((images[0].permute(1, 2, 0) * 255).round().to(torch.uint8).numpy())


def back(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.asarray(image).astype(np.float64)).permute(2, 0, 1)[None] / 255


@pytest.mark.parametrize(
    ("name", "enhance"),
    [
        ("brightness", ImageEnhance.Brightness),
        ("contrast", ImageEnhance.Contrast),
        ("colour", ImageEnhance.Color),
        ("sharpness", ImageEnhance.Sharpness),
    ],
)
@pytest.mark.parametrize("magnitude", [0.333, -0.333])
def test_enhancers_are_pillows(name, enhance, magnitude):
    image = eight_bit(picture())
    expected = back(enhance(image).enhance(1 + magnitude))
    # Two roundings to 8 bits lie between the two.
    torch.testing.assert_close(apply(name, back(image), magnitude), expected, rtol=0, atol=2.1 / 255)


def test_inversion_solarising_and_autocontrast_are_pillows():
    image = eight_bit(picture())
    pixels = back(image)
    torch.testing.assert_close(apply("invert", pixels, 1.0), back(ImageOps.invert(image)), rtol=0, atol=1e-6)
    torch.testing.assert_close(
        apply("autocontrast", pixels), back(ImageOps.autocontrast(image)), rtol=0, atol=1.1 / 255
    )
    # Away from the threshold, where the soft edge has ended.
    far = (pixels - 0.5).abs() > 0.15
    gap = (apply("solarise", pixels, 0.5) - back(ImageOps.solarize(image, 128))).abs()
    assert float(gap[far].max()) < 2e-3


def striped(height: int, width: int) -> torch.Tensor:
    rows, columns = torch.arange(height).double()[:, None], torch.arange(width).double()
    return (torch.sin(columns / 3) + torch.cos(rows / 4) + 2)[None, None].repeat(1, 3, 1, 1) / 4


@pytest.mark.parametrize("size", [(32, 32), (24, 40), (40, 24)])
@pytest.mark.parametrize("slope", [0.1667, -0.1667, 0.3])
@pytest.mark.parametrize("name", ["shear-x", "shear-y"])
def test_shears_are_pillows_about_the_corner(name, slope, size):
    image = eight_bit(striped(*size))
    pixels = back(image)
    rows = (1, slope, 0, 0, 1, 0) if name == "shear-x" else (1, 0, 0, slope, 1, 0)
    linear, cubic = (
        back(image.transform(image.size, Image.Transform.AFFINE, rows, method))
        for method in (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)
    )
    sheared, covered = apply(name, pixels, slope), apply(name, torch.ones_like(pixels), slope)
    inside, outside = covered > 1 - 1e-9, covered < 1e-9
    # All but the pixel in which the picture ends: there the edge fades, so that it can be learnt.
    assert int((~inside & ~outside).sum()) <= 3 * max(size)
    torch.testing.assert_close(sheared[inside], linear[inside], rtol=0, atol=1.1 / 255)
    torch.testing.assert_close(sheared[inside], cubic[inside], rtol=0, atol=5 / 255)
    assert float(sheared[outside].abs().sum()) == float(cubic[outside].sum()) == 0


def test_a_turn_can_leave_autoaugments_grey():
    image = eight_bit(striped(24, 40))
    turned = image.convert("RGBA").rotate(6.667, Image.Resampling.BILINEAR)
    expected = back(Image.composite(turned, Image.new("RGBA", turned.size, (128,) * 4), turned).convert("RGB"))
    ours = apply("rotate-grey", back(image), 6.667)
    covered = apply("rotate", torch.ones_like(ours), 6.667)
    inside, outside = covered > 1 - 1e-9, covered < 1e-9
    torch.testing.assert_close(ours[inside], expected[inside], rtol=0, atol=1.5 / 255)
    torch.testing.assert_close(ours[outside], torch.full_like(ours, 128 / 255)[outside], rtol=0, atol=1e-12)
    assert float((expected[outside] - 128 / 255).abs().max()) < 1e-9
    assert float(apply("rotate", back(image), 6.667)[outside].abs().max()) == 0


def test_a_quarter_turn_and_a_mirror():
    images = picture()
    torch.testing.assert_close(apply("rotate", images, 90.0), images.rot90(1, (-2, -1)), rtol=0, atol=1e-9)
    torch.testing.assert_close(apply("flip", images, 1.0), images.flip(-1), rtol=0, atol=1e-12)


def test_zooming_in_and_out_again_keeps_the_middle():
    images = picture(side=24)
    again = apply("zoom", apply("zoom", images, -0.25), 1 / 0.75 - 1)
    assert float((again - images)[..., 4:-4, 4:-4].abs().max()) < 0.03


def test_at_the_true_shift_the_loss_is_that_of_what_the_model_saw():
    clean = picture(side=6, channels=1)
    moved = torch.zeros_like(clean)
    moved[..., 1:, 2:] = clean[..., :-1, :-2]
    seen = seen_of(dense(), Batch(moved, torch.tensor([1])))
    candidate = Transformed((TRANSFORMS["shift"],))
    variables = {"inputs": clean[None], "transform.0": torch.tensor([[[2 / 6, 1 / 6]]], dtype=torch.float64)}
    decoded = candidate.decode(seen, variables)[0]
    target = {name: value[None] for name, value in seen.update.tensors.items()}
    route = PlainRoute(seen, OneGradient(), Cosine())
    losses = [route.distance_at(x, torch.tensor([1]), target, create_graph=False) for x in (decoded, moved)]
    assert float(losses[0]) == pytest.approx(float(losses[1]), abs=1e-5)


def test_parameters_belong_to_examples_and_stay_in_range():
    seen = seen_of(dense(), Batch(picture(side=6, channels=1).repeat(2, 1, 1, 1), torch.tensor([1, 2])))
    candidate = Transformed((TRANSFORMS["shift"], TRANSFORMS["autocontrast"]))
    begin = {name: value[None] for name, value in candidate.start(seen, 2, generator(0)).items()}
    begin["transform.0"] = torch.tensor([[[9.0, 0.1], [-9.0, 0.0]]], dtype=torch.float64)
    kept = candidate.project(seen, begin)
    assert kept["transform.0"].tolist() == [[[0.6, 0.1], [-0.6, 0.0]]]
    (note,) = candidate.describe(seen, {name: value[0] for name, value in kept.items()})
    assert note == "learnt transformation: shift 0.6/0.1, -0.6/0; autocontrast"


def test_each_example_may_have_a_range_of_its_own():
    seen = seen_of(dense(), Batch(picture(side=6, channels=1).repeat(2, 1, 1, 1), torch.tensor([1, 2])))
    left = replace(TRANSFORMS["shift-x"], start=(-0.5,), low=(-0.6,), high=(-0.4,))
    right = replace(TRANSFORMS["shift-x"], start=(0.5,), low=(0.4,), high=(0.6,))
    candidate = Transformed((left,), each=((left,), (right,)))
    begin = {name: value[None] for name, value in candidate.start(seen, 2, generator(0)).items()}
    assert begin["transform.0"].tolist() == [[[-0.5], [0.5]]]
    begin["transform.0"] = torch.tensor([[[9.0], [-9.0]]], dtype=torch.float64)
    assert candidate.project(seen, begin)["transform.0"].tolist() == [[[-0.4], [0.4]]]
