"""Load trained weights from safetensors files, checked name by name before anything is written."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from leakscope.errors import BadInputError

# Names in published weights → names here. `linear` is the CIFAR ResNets', the others torchvision's.
_ALIASES = (
    (re.compile(r"^module\."), ""),
    (re.compile(r"^linear\."), "fc."),
    (re.compile(r"\.downsample\."), ".shortcut."),
    (re.compile(r"^classifier\.0\."), "classifier.fc1."),
    (re.compile(r"^classifier\.3\."), "classifier.fc2."),
    (re.compile(r"^classifier\.6\."), "classifier.fc3."),
)

# State that published files may lack: the constants of the first layer and a step counter.
_OPTIONAL = re.compile(r"(^|\.)(normalise\.(mean|std)|num_batches_tracked)$")


def load_weights(model: nn.Module, path: str | PathLike[str]) -> nn.Module:
    """Copy the weights in a safetensors file into `model` and return it.

    Names are taken as they are; those of widely used CIFAR ResNet and torchvision files are
    translated. Nothing is written unless every name, shape and value fits. The normalisation
    of `model` stays as built unless the file holds it.

    Raises:
        BadInputError: The file is unreadable, or does not fit the model.
    """
    file = Path(path)
    state = model.state_dict()
    loaded = _renamed(_read(file), state)
    _check_names(file, loaded, state)
    for name, value in loaded.items():
        _check_tensor(file, name, value, state[name])
    with torch.no_grad():
        for name, value in loaded.items():
            state[name].copy_(value)
    return model


def _read(file: Path) -> dict[str, Tensor]:
    if file.suffix != ".safetensors":
        raise BadInputError(
            f"{file.name}: weights must be a .safetensors file, got {file.suffix or 'no suffix'!r}; pickled files can "
            "run code when read, so convert them where they were made: "
            "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
        )
    try:
        return load_file(file)
    except FileNotFoundError:
        raise BadInputError(f"{file}: no such file; give the path of a .safetensors file") from None
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise BadInputError(
            f"{file.name}: not a complete safetensors file ({error}); fetch or convert it again"
        ) from None


def _renamed(loaded: dict[str, Tensor], state: dict[str, Tensor]) -> dict[str, Tensor]:
    def translate(name: str) -> str:
        for pattern, replacement in _ALIASES:
            if name in state:
                break
            name = pattern.sub(replacement, name)
        return name

    return {translate(name): value for name, value in loaded.items()}


def _check_names(file: Path, loaded: dict[str, Tensor], state: dict[str, Tensor]) -> None:
    missing = [name for name in state if name not in loaded and not _OPTIONAL.search(name)]
    extra = [name for name in loaded if name not in state]
    if missing or extra:
        raise BadInputError(
            f"{file.name} does not hold the weights of this model: {_some(missing, 'missing')}, "
            f"{_some(extra, 'unexpected')}; build the network the file was trained with"
        )


def _some(names: list[str], word: str) -> str:
    shown = f" ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})" if names else ""
    return f"{len(names)} {word}{shown}"


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
