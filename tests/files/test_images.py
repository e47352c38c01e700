"""PNG files hold exactly the pixels they were given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from leakscope.errors import BadInputError, UsageError
from leakscope.files import save_images
from leakscope.rng import generator, uniform


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_survive(tmp_path: Path, channels: int) -> None:
    images = uniform((2, channels, 4, 5), generator(0))
    paths = save_images(tmp_path / "out", images)
    assert [path.name for path in paths] == ["image-0000.png", "image-0001.png"]
    for path, image in zip(paths, images, strict=True):
        pixels = np.asarray(Image.open(path)).reshape(4, 5, channels)
        assert np.array_equal(pixels, (image.permute(1, 2, 0) * 255).round().numpy().astype(np.uint8))


def test_bytes_and_overshoot(tmp_path: Path) -> None:
    (path,) = save_images(tmp_path, torch.tensor([[[[-0.5, 1.5]]]]), prefix="worst")
    assert np.asarray(Image.open(path)).tolist() == [[0, 255]]
    (path,) = save_images(tmp_path, torch.tensor([[[[7, 200]]]], dtype=torch.uint8))
    assert np.asarray(Image.open(path)).tolist() == [[7, 200]]


@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(3, 4, 4),
        torch.zeros(1, 2, 4, 4),
        torch.zeros(0, 3, 4, 4),
        torch.full((1, 1, 2, 2), float("nan")),
        torch.zeros(1, 1, 2, 2, dtype=torch.int64),
    ],
)
def test_what_is_no_image_is_refused(tmp_path: Path, images: torch.Tensor) -> None:
    with pytest.raises(BadInputError, match="images"):
        save_images(tmp_path / "out", images)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("prefix", ["../x", "a/b", "", ".hidden", "a\0b", "x" * 65])
def test_prefixes_cannot_escape(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(UsageError, match="prefix"):
        save_images(tmp_path, torch.zeros(1, 1, 2, 2), prefix=prefix)
