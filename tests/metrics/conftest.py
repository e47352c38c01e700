"""Real weights and pictures for the metrics' tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from skimage import data, transform
from torch import Tensor


@pytest.fixture(scope="session")
def data_folder() -> Path:
    beside = Path(__file__).parents[2].parent / "shared" / "data"
    folder = Path(os.environ.get("LEAKSCOPE_DATA") or beside)
    if not folder.is_dir():
        pytest.skip("no data folder: set LEAKSCOPE_DATA to the one that holds weights/lpips_alex.safetensors")
    return folder


@pytest.fixture(scope="session")
def photos() -> Tensor:
    """Two photographs [2, 3, 64, 64] in [0, 1]."""
    pictures = [transform.resize(image, (64, 64), anti_aliasing=True) for image in (data.astronaut(), data.chelsea())]
    return torch.stack([torch.from_numpy(picture).permute(2, 0, 1) for picture in pictures]).float()
