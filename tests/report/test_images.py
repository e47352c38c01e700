from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from leakscope.files.images import encode_png
from leakscope.report.gallery import LARGEST_SIDE, data_uri, to_pixels


@pytest.mark.parametrize("channels", [1, 3])
def test_png_is_read_back_exactly_by_another_program(channels):
    pixels = torch.randint(0, 256, (7, 11, channels), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    read = np.asarray(Image.open(io.BytesIO(encode_png(pixels))))
    np.testing.assert_array_equal(read.reshape(7, 11, channels), pixels.numpy())


def test_data_uri_holds_the_same_png():
    pixels = torch.zeros(2, 2, 3, dtype=torch.uint8)
    head, body = data_uri(pixels).split(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(body) == encode_png(pixels)


def test_values_outside_the_range_and_not_numbers_are_drawn():
    image = torch.tensor([[[-1.0, 0.5, 2.0, float("nan"), float("inf")]]])
    assert to_pixels(image).flatten().tolist() == [0, 128, 255, 0, 255]


def test_odd_channels_become_grey_and_large_images_shrink():
    assert to_pixels(torch.rand(4, 8, 8)).shape == (8, 8, 1)
    assert to_pixels(torch.rand(3, 600, 300)).shape == (LARGEST_SIDE, LARGEST_SIDE // 2, 3)


def test_half_precision_is_drawn():
    assert to_pixels(torch.ones(1, 2, 2, dtype=torch.bfloat16)).unique().tolist() == [255]
