"""Does this update belong to this model? Asked before anything is computed with it."""

from __future__ import annotations

import difflib
import logging

import torch
from torch import Tensor, nn

from leakscope.errors import BadInputError
from leakscope.files.names import find_tied_names, match_names
from leakscope.files.opening import show
from leakscope.files.state_dicts import split_buffers
from leakscope.types import SharedUpdate, Tensors

_LOG = logging.getLogger("leakscope.files")


def check_update(
    update: SharedUpdate, model: nn.Module, *, partial: bool = False, notes: list[str] | None = None
) -> SharedUpdate:
    """Return `update` with names, dtype and device of `model`'s parameters, or say what does not fit.

    Args:
        update: What a client shared. It is not changed.
        model: The model it was computed on.
        partial: Accept an update that leaves trainable parameters out.
        notes: Receives one sentence per conversion that was made.

    Raises:
        BadInputError: A name, shape or dtype differs, a parameter is missing, or a value is not finite.
    """
    log = [] if notes is None else notes
    start = len(log)
    named, buffers = _by_role(update, model, log)
    parameters = dict(model.named_parameters())
    _check_names(named, parameters, partial=partial)
    for name, value in named.items():
        _check_shape(name, value, named=named, parameters=parameters)
    tensors = {name: _convert(name, named[name], parameters[name], log) for name in parameters if name in named}
    for name, value in (tensors | buffers).items():
        _check_finite(name, value)
    for note in dict.fromkeys(log[start:]):
        _LOG.info("%s", note)
    log[start:] = dict.fromkeys(log[start:])
    return SharedUpdate(update.kind, tensors, update.num_examples, update.local, buffers)


def _by_role(update: SharedUpdate, model: nn.Module, log: list[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Rename to the model's names; separate buffers; give tied parameters their first name."""
    everything = {**update.tensors, **update.buffers}
    mapping, note = match_names(everything, model)
    if note:
        log.append(note)
    by_name, known = split_buffers({mapping[name]: value for name, value in everything.items()})
    owned = {name for name, _ in model.named_buffers(remove_duplicate=False)} | {mapping[n] for n in update.buffers}
    buffers = known | {name: value for name, value in by_name.items() if name in owned}
    tied = find_tied_names(model)
    named = {name: value for name, value in by_name.items() if name not in buffers and name not in tied}
    for name in (name for name in by_name if name in tied):
        other = named.setdefault(tied[name], by_name[name])
        if other.shape != by_name[name].shape or not torch.equal(other, by_name[name]):
            raise BadInputError(f"tensors {show(name)} and {show(tied[name])} are tied in the model, but differ here")
    return named, buffers


def _check_names(named: Tensors, parameters: Tensors, *, partial: bool) -> None:
    extra = [name for name in named if name not in parameters]
    missing = [name for name, value in parameters.items() if name not in named and value.requires_grad]
    if extra:
        near = difflib.get_close_matches(extra[0], list(parameters), n=1, cutoff=0.6)
        hint = f"did you mean {show(near[0])}?" if near else "is this the right model?"
        raise BadInputError(
            f"tensor {show(extra[0])}: the model has no such parameter ({len(extra)} unknown of {len(named)}, "
            f"{len(missing)} of the model's {len(parameters)} missing); {hint}"
        )
    if not named:
        raise BadInputError("the update holds no parameter of the model, only buffers; share the parameters too")
    if missing and not partial:
        raise BadInputError(
            f"tensor {show(missing[0])} is missing ({len(missing)} of {len(parameters)} parameters are); "
            "if the client does not share them, say so: partial=True, or --partial on the command line"
        )


def _check_shape(name: str, value: Tensor, *, named: Tensors, parameters: Tensors) -> None:
    expected, actual = tuple(parameters[name].shape), tuple(value.shape)
    if actual == expected:
        return
    hint = "is this the right model?"
    swapped = [n for n, v in named.items() if tuple(v.shape) == expected and tuple(parameters[n].shape) != expected]
    if swapped:
        hint = f"tensor {show(swapped[0])} has the shape expected here: were layers permuted?"
    elif actual == expected[::-1]:
        hint = "it looks transposed: pass tensor.T"
    elif sorted(actual) == sorted(expected):
        hint = "its axes look permuted: torch keeps [out, in, height, width]; use tensor.permute"
    elif value.numel() == parameters[name].numel():
        hint = f"it has the right number of elements: use tensor.reshape{expected}"
    raise BadInputError(f"tensor {show(name)}: expected shape {list(expected)}, got {list(actual)}; {hint}")


def _convert(name: str, value: Tensor, parameter: Tensor, log: list[str]) -> Tensor:
    if not value.is_floating_point():
        raise BadInputError(
            f"tensor {show(name)}: expected {parameter.dtype}, got {value.dtype}; "
            "undo the quantisation (scale · integer) before auditing"
        )
    if value.layout != torch.strided:
        raise BadInputError(f"tensor {show(name)}: expected a dense tensor, got {value.layout}; call .to_dense()")
    if value.dtype != parameter.dtype:
        # Before the cast: a number too large for the new type becomes Inf, and is then our doing.
        _check_finite(name, value)
        log.append(f"tensors were converted from {value.dtype} to the model's {parameter.dtype}")
    if value.device != parameter.device:
        log.append(f"tensors were moved from {value.device} to the model's {parameter.device}")
    return value.detach().to(device=parameter.device, dtype=parameter.dtype)


def _check_finite(name: str, value: Tensor) -> None:
    if not value.is_floating_point() or bool(torch.isfinite(value).all()):
        return
    nan, inf = int(torch.isnan(value).sum()), int(torch.isinf(value).sum())
    raise BadInputError(
        f"tensor {show(name)}: {nan} NaN and {inf} Inf among {value.numel()} values of {value.dtype}; "
        "the client's training diverged, or its precision is too low: share it again"
    )
