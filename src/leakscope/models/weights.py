"""Trained weights from a file of any supported format, checked name by name before anything is written."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from leakscope.errors import BadInputError
from leakscope.files import load_state
from leakscope.files.names import find_tied_names, match_state
from leakscope.models.normalise import Normalise

# Names in published weights → names here. `linear` is the CIFAR ResNets', the others torchvision's.
_ALIASES = (
    (re.compile(r"^module\."), ""),
    (re.compile(r"^linear\."), "fc."),
    (re.compile(r"\.downsample\."), ".shortcut."),
    (re.compile(r"^classifier\.0\."), "classifier.fc1."),
    (re.compile(r"^classifier\.3\."), "classifier.fc2."),
    (re.compile(r"^classifier\.6\."), "classifier.fc3."),
)
_STEP_COUNTER = "num_batches_tracked"


def load_weights(model: nn.Module, path: str | PathLike[str]) -> nn.Module:
    """Copy the weights in a file into `model` and return it.

    The file is safetensors, .pt, .pth or .npz; a checkpoint may hold the state dict under "state_dict",
    "model_state_dict" or "model". Names are taken as they are; those of widely used CIFAR ResNet and
    torchvision files are translated, and one prefix that a wrapper put before all of them, in the file or in
    the model, is allowed for. Nothing is written unless every name, shape and value fits. The normalisation
    of `model` stays as built unless the file holds it.

    Raises:
        BadInputError: The file is unreadable, or does not fit the model.
    """
    # Links are followed: download caches consist of them, and the user named this file.
    file = Path(path).resolve()
    state = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    loaded = _rename(file, load_state(file), model, state)
    for name, value in loaded.items():
        _check_tensor(file, name, value, state[name])
    _check_tied(file, loaded, find_tied_names(model))
    with torch.no_grad():
        for name, value in loaded.items():
            state[name].copy_(value)
    return model


def _rename(file: Path, loaded: dict[str, Tensor], model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    translated = {_translate(name, state): value for name, value in loaded.items()}
    tensors = translated if set(translated) <= set(state) and len(translated) == len(loaded) else loaded
    try:
        mapping = match_state(list(tensors), list(state), optional=_optional(model, state, tensors))
    except BadInputError as error:
        raise BadInputError(f"{file.name} does not hold the weights of this model: {error}") from None
    return {mapping[name]: value for name, value in tensors.items() if name in mapping}


def _translate(name: str, state: dict[str, Tensor]) -> str:
    for pattern, replacement in _ALIASES:
        if name in state:
            break
        name = pattern.sub(replacement, name)
    return name


def _optional(model: nn.Module, state: dict[str, Tensor], loaded: dict[str, Tensor]) -> set[str]:
    """What a file may lack: a first layer's constants, step counters, a second name of a tied weight."""
    constants = {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        if isinstance(module, Normalise)
        for name, _ in module.named_buffers()
    }
    counters = {name for name in state if name.rpartition(".")[2] == _STEP_COUNTER}
    tied = {first if second in loaded else second for second, first in find_tied_names(model).items()}
    return constants | counters | tied


def _check_tied(file: Path, loaded: dict[str, Tensor], tied: dict[str, str]) -> None:
    for second, first in tied.items():
        if second in loaded and first in loaded and not torch.equal(loaded[second], loaded[first]):
            raise BadInputError(f"{file.name}: {second} and {first} are one tensor in the model, but differ here")


def _check_tensor(file: Path, name: str, value: Tensor, wanted: Tensor) -> None:
    if value.shape != wanted.shape:
        raise BadInputError(
            f"{file.name}: {name} needs shape {list(wanted.shape)}, got {list(value.shape)}; "
            "check num_classes, in_channels and image_size"
        )
    if value.is_floating_point() != wanted.is_floating_point():
        raise BadInputError(f"{file.name}: {name} needs {wanted.dtype}, got {value.dtype}; save it in that dtype")
    if value.is_floating_point() and not bool(torch.isfinite(value).all()):
        raise BadInputError(f"{file.name}: {name} holds NaN or Inf; take a checkpoint from before training diverged")
