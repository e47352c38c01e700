"""A network of the user's own code, named `package.module:function` on the command line."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from leakscope.errors import UsageError

_EXPECTED = "expected package.module:function, a function without arguments that returns a torch.nn.Module"
_REMEDY = (
    "pass the weights the client started from as --weights (attack also takes them as --before), "
    "or load or seed them inside the function"
)


def build_own(name: str, *, has_weights: bool) -> nn.Module:
    """Call a function of the user's own code: named on the command line, never in a file.

    Without weights to load, the network is built twice: where the two differ, its weights are drawn at
    random, they are not the client's, and an attack on them ends in noise that looks like protection.
    """
    function = _imported(name)
    network = _built(name, function)
    if not has_weights:
        _check_repeatable(name, network, _built(name, function))
    return network


def _imported(name: str) -> Callable[[], Any]:
    module_name, _, function_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    # SystemExit too: a script's own exit code would be read as the result of an audit.
    except (Exception, SystemExit) as error:
        raise UsageError(f"cannot import {name!r}: {_told(error)}; {_EXPECTED}, seen from here") from error
    if not callable(function):
        raise UsageError(f"{name!r} cannot be called, it is of type {type(function).__name__}; {_EXPECTED}")
    return function


def _built(name: str, function: Callable[[], Any]) -> nn.Module:
    try:
        network = function()
    except (Exception, SystemExit) as error:
        raise UsageError(f"{name!r} cannot be called: {_told(error)}; {_EXPECTED}") from error
    if not isinstance(network, nn.Module):
        raise UsageError(f"{name!r} must return a torch.nn.Module, got {type(network).__name__}; {_EXPECTED}")
    return network


def _told(error: BaseException) -> str:
    """Type, message and place of an error in one line: no traceback will be shown."""
    here = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(os.getcwd() + os.sep)
        and frame.filename != __file__
        and "site-packages" not in frame.filename
    ]
    place = f" ({os.path.relpath(here[-1].filename)}, line {here[-1].lineno})" if here else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"


def _check_repeatable(name: str, first: nn.Module, second: nn.Module) -> None:
    one, other = _tensors(first), _tensors(second)
    if any(value is other.get(key) for key, value in one.items()):
        raise UsageError(
            f"{name!r} returns the same network at each call, so nothing tells whether its weights are the same in "
            f"each run; build a new one at each call, or {_REMEDY}"
        )
    differing = [key for key in {**one, **other} if not _same(one.get(key), other.get(key))]
    if differing:
        raise UsageError(
            f"{name!r} builds other weights at each call ({differing[0]!r} and {len(differing) - 1} more of {len(one)} "
            f"tensors differ), so they cannot be the client's; {_REMEDY}"
        )


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None or any(is_lazy(value) or value.is_meta for value in (one, other)):
        return False
    return one.dtype == other.dtype and torch.equal(one, other)
