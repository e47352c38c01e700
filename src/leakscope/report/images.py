"""Tensors to PNG data URIs, with the standard library alone."""

from __future__ import annotations

import base64
import struct
import zlib

import torch
from torch import Tensor
from torch.nn import functional

# Beyond this side the page would hold a handful of pictures at most.
LARGEST_SIDE = 256
_GREY, _RGB = 0, 2
_FILTER_UP = 2


def to_pixels(image: Tensor) -> Tensor:
    """Turn one [C, H, W] image in [0, 1] into uint8 [H, W, 1 or 3] on the CPU.

    Channels that are neither grey nor RGB are averaged to grey; NaN shows as black.
    """
    values = image.detach().to(device="cpu", dtype=torch.float32)
    values = torch.nan_to_num(values, nan=0.0, posinf=1.0, neginf=0.0).clamp(0, 1)
    if values.shape[0] not in (1, 3):
        values = values.mean(dim=0, keepdim=True)
    side = max(values.shape[1:])
    if side > LARGEST_SIDE:
        size = [max(1, round(length * LARGEST_SIDE / side)) for length in values.shape[1:]]
        values = functional.interpolate(values[None], size=size, mode="area")[0]
    return (values * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous()


def png(pixels: Tensor) -> bytes:
    """Encode uint8 [H, W, 1 or 3] as PNG.

    Each row is stored as the difference to the row above, which deflate packs better than
    the pixels themselves.
    """
    height, width, channels = pixels.shape
    rows = pixels.reshape(height, width * channels)
    above = torch.cat([torch.zeros_like(rows[:1]), rows[:-1]])
    marked = torch.cat([torch.full((height, 1), _FILTER_UP, dtype=torch.uint8), rows - above], dim=1)
    header = struct.pack(">IIBBBBB", width, height, 8, _RGB if channels == 3 else _GREY, 0, 0, 0)
    body = zlib.compress(marked.numpy().tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def data_uri(pixels: Tensor) -> str:
    """Encode uint8 [H, W, 1 or 3] as a PNG data URI."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
