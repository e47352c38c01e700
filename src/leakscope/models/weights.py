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
from leakscope.files.opening import follow_links
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
_VARIANCE = "running_var"
_SINGLE = torch.finfo(torch.float32).max


def load_weights(model: nn.Module, path: str | PathLike[str], *, budget_mb: float | None = None) -> nn.Module:
    """Copy the weights in a file into `model` and return it.

    The file is safetensors, .pt, .pth or .npz; a checkpoint may hold the state dict under "state_dict",
    "model_state_dict" or "model". Names are taken as they are; those of widely used CIFAR ResNet and
    torchvision files are translated, and one prefix that a wrapper put before all of them, in the file or in
    the model, is allowed for. Nothing is written unless every name, shape and value fits. The normalisation
    of `model` stays as built unless the file holds it. `budget_mb` is the most memory the tensors may take, in
    megabytes; 2048 unless given or said by LEAKSCOPE_BUDGET_MB.

    Raises:
        BadInputError: The file is unreadable, or does not fit the model.
    """
    file = Path(follow_links(path))
    state = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    loaded = _rename(file, load_state(file, budget_mb=budget_mb), model, state)
    for name, value in loaded.items():
        _check_tensor(file, name, value, state[name])
    _check_tied(file, loaded, find_tied_names(model))
    _check_deviations(file, loaded, model)
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


def _check_deviations(file: Path, loaded: dict[str, Tensor], model: nn.Module) -> None:
    for path, module in model.named_modules():
        name = f"{path}.std" if path else "std"
        if isinstance(module, Normalise) and name in loaded and not bool((loaded[name] > 0).all()):
            raise BadInputError(f"{file.name}: {name} must be > 0, got {float(loaded[name].min()):.3g}; save it again")


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
    if value.is_floating_point():
        _check_values(f"{file.name}: {name}", value, wanted)


def _check_values(where: str, value: Tensor, wanted: Tensor) -> None:
    """Refuse numbers with which no network computes: they end in noise that looks like protection."""
    if not bool(torch.isfinite(value).all()):
        nan, inf = int(torch.isnan(value).sum()), int(torch.isinf(value).sum())
        raise BadInputError(
            f"{where} holds NaN or Inf: expected finite numbers, got {nan} NaN and {inf} Inf among {value.numel()}; "
            "take a checkpoint from before training diverged"
        )
    # A network multiplies its numbers: their squares must be numbers, too, and what is stored wider must fit.
    largest = min(torch.finfo(wanted.dtype).max, max(_SINGLE, torch.finfo(wanted.dtype).max) ** 0.5)
    if value.numel() and float(value.abs().max()) > largest:
        raise BadInputError(
            f"{where} is too large: expected numbers up to {largest:.3g} in {wanted.dtype}, got "
            f"{float(value.abs().max()):.3g}; take a checkpoint from before training diverged"
        )
    kind = where.rpartition(".")[2]
    if kind == _VARIANCE and bool((value < 0).any()):
        raise BadInputError(
            f"{where} must be ≥ 0, got {float(value.min()):.3g}; it is no variance, save the model again"
        )
