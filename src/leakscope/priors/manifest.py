"""A prior as tensors and a line of JSON, and back; nothing in it is ever executed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from leakscope.errors import BadInputError, UsageError
from leakscope.priors.convolutional import ConvDecoder
from leakscope.priors.prior import Prior
from leakscope.priors.residual import recognise_residual
from leakscope.types import Tensors

KEY = "leakscope-prior"
# Images beyond this side would take more memory than any audit has.
_LARGEST_SIDE = 1024


class PriorManifest(BaseModel):
    """The architecture of a trained prior, and where it comes from."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal[1]
    decoder: Literal["convolutional"]
    image_shape: tuple[int, int, int]
    latent: int = Field(ge=1)
    width: int = Field(ge=1)
    about: str = Field(max_length=1000)


def describe(prior: Prior) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of the file that `recognise` reads back."""
    decoder = prior.architecture
    if not isinstance(decoder, ConvDecoder):
        raise UsageError(
            f"only trained priors are written to files, got {type(decoder).__name__}; "
            "the file a decoder was read from can be used as it is, and prior=smooth needs none"
        )
    manifest = PriorManifest(
        format=1,
        decoder="convolutional",
        image_shape=decoder.image_shape,
        latent=decoder.latent,
        width=decoder.width,
        about=prior.about,
    )
    return {name: value.contiguous() for name, value in prior.weights.items()}, {KEY: manifest.model_dump_json()}


def recognise(tensors: Tensors, metadata: Mapping[str, str], *, name: str = "the file") -> Prior:
    """The prior that `tensors` and `metadata` of `name` are: one of ours, or a known foreign decoder."""
    if KEY in metadata:
        manifest = _parse(metadata[KEY], name)
        decoder = ConvDecoder(manifest.image_shape, manifest.latent, manifest.width)
        return Prior(decoder, dict(tensors), manifest.about)
    found = recognise_residual(tensors)
    for key, value in () if found is None else tensors.items():
        if not value.is_floating_point() or not value.numel():
            raise BadInputError(
                f"{name}: expected floating-point weights of at least one number as {key!r}, got {value.dtype} "
                f"of shape {list(value.shape)}; use another file"
            )
    if found is None:
        raise BadInputError(
            f"{name} holds no prior: neither a manifest of leakscope nor the numbered layers of a tiny autoencoder's "
            "decoder; train one with leakscope prior train --data fashion-mnist --out prior.safetensors"
        )
    # Such files come in half precision, in which no attack can be trusted.
    return Prior(found, {key: value.to(torch.float32) for key, value in tensors.items()}, f"decoder from {name}")


def _parse(text: str, name: str) -> PriorManifest:
    try:
        manifest = PriorManifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise BadInputError(
            f"{name}: the manifest of the prior is not valid at {field!r}: {first['msg']}; "
            "train it again, or update leakscope if a newer one wrote it"
        ) from None
    if not all(1 <= side <= _LARGEST_SIDE for side in manifest.image_shape):
        raise BadInputError(
            f"{name}: expected images of 1 to {_LARGEST_SIDE} pixels a side, got {list(manifest.image_shape)}"
        )
    return manifest
