"""Writing images as PNG files with names that say nothing about their content."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from leakscope.errors import BadInputError, UsageError
from leakscope.files.atomic import private_folder, write_atomic

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def save_images(folder: str | os.PathLike[str], images: Tensor, *, prefix: str = "image") -> list[Path]:
    """Write images [n, C, H, W] in [0, 1] (or uint8) as <prefix>-0000.png, …; return the paths.

    Values outside [0, 1] are clamped: a reconstruction may overshoot a little.
    """
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(f"prefix must be letters, digits, '-' and '_' (at most 64), got {prefix!r}")
    if images.ndim != 4 or images.shape[1] not in (1, 3) or 0 in images.shape:
        raise BadInputError(f"images must have shape [n, 1 or 3, height, width], got {list(images.shape)}")
    pixels = _as_bytes(images.detach().to("cpu"))
    target = private_folder(folder)
    return [
        write_atomic(target / f"{prefix}-{index:04d}.png", encode_png(image.permute(1, 2, 0)))
        for index, image in enumerate(pixels)
    ]


def _as_bytes(images: Tensor) -> Tensor:
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise BadInputError(f"images must be floating point in [0, 1] or uint8, got {images.dtype}")
    wide = images.float()
    if not bool(torch.isfinite(wide).all()):
        raise BadInputError("images hold NaN or Inf; there is no picture to write")
    return (wide.clamp(0, 1) * 255).round().to(torch.uint8)


def encode_png(pixels: Tensor) -> bytes:
    """Encode uint8 [H, W, 1 or 3] as PNG."""
    array = pixels.contiguous().numpy()
    picture = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()
