"""Tensors to PNG data URIs."""

from __future__ import annotations

import base64

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.files.images import encode_png

# Beyond this side the page would hold a handful of pictures at most.
LARGEST_SIDE = 256


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


def data_uri(pixels: Tensor) -> str:
    """Encode uint8 [H, W, 1 or 3] as a PNG data URI."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode("ascii")
