"""Models and updates from what a user names on the command line."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from torch import nn

from leakscope import models
from leakscope.errors import BadInputError, UsageError
from leakscope.files import delta, load_state, load_update
from leakscope.tensors import dot, global_norm
from leakscope.types import LocalTraining, SharedUpdate

# Gradients and deltas are nearly orthogonal to the weights; a trained copy of them is not.
_SAME_WEIGHTS = 0.9


def load_model(
    name: str, *, weights: Path | None, shape: tuple[int, ...], classes: int | None, normalise: str | None, seed: int
) -> nn.Module:
    """A reference network, or the user's own `package.module:function`."""
    if ":" in name:
        network = _own_model(name)
    else:
        if len(shape) != 3:
            raise UsageError(f"reference networks take images; --input-shape needs three numbers, got {len(shape)}")
        network = models.build(
            name, num_classes=classes or 10, in_channels=shape[0], image_size=shape[1], normalise=normalise, seed=seed
        )
    if weights is not None:
        _load_weights(network, weights)
    return network


def _own_model(name: str) -> nn.Module:
    """Call a function of the user's own code: named on the command line, never in a file."""
    module_name, _, function_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"cannot import {name!r}: {error}; expected package.module:function, seen from here"
        ) from error
    network = function()
    if not isinstance(network, nn.Module):
        raise UsageError(f"{name!r} must return a torch.nn.Module, got {type(network).__name__}")
    return network


def _load_weights(network: nn.Module, path: Path) -> None:
    state = load_state(path)
    try:
        network.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise BadInputError(
            f"the weights {path} do not fit the model: {str(error).splitlines()[-1].strip()}"
        ) from error


def load_any_update(
    path: Path, *, before: Path | None, kind: str | None, lr: float | None, steps: int, batch: int,
    num_examples: int | None,
) -> SharedUpdate:  # fmt: skip
    """An update file, or the difference of two state dicts."""
    if kind not in (None, "gradient", "delta"):
        raise UsageError(f"--kind must be 'gradient' or 'delta', got {kind!r}")
    local = None if lr is None else LocalTraining(lr, steps, batch)
    if before is not None:
        return delta(load_state(before), load_state(path), local=local, num_examples=num_examples)
    return load_update(path, kind=kind, local=local, num_examples=num_examples)  # type: ignore[arg-type]


def refuse_weights(update: SharedUpdate, network: nn.Module, path: Path) -> None:
    """Refuse a state dict passed as an update: an attack on it ends in noise that looks like protection."""
    parameters = {name: value.detach() for name, value in network.named_parameters() if name in update.tensors}
    own = {name: update.tensors[name] for name in parameters}
    cosine = dot(own, parameters) / (global_norm(own) * global_norm(parameters)).clamp_min(1e-30)
    if float(cosine) > _SAME_WEIGHTS:
        raise BadInputError(
            f"{path} holds weights much like the model's own (cosine {float(cosine):.3f}), not an update; "
            "expected a gradient or a change of weights: pass the weights before training as --before"
        )


def parse_numbers(text: str, option: str) -> list[int]:
    """Comma-separated whole numbers."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{option} needs whole numbers separated by commas, got {text!r}") from error
