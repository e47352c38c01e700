"""Saving and loading updates and states."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from torch import Tensor

from leakscope.errors import BadInputError, UsageError
from leakscope.files.formats import check_storable, read_any, read_tensors, write_tensors
from leakscope.files.manifest import KEY, Manifest, describe, parse
from leakscope.files.opening import ByteSource, open_source, show
from leakscope.files.state_dicts import delta, split_buffers
from leakscope.types import LocalTraining, SharedUpdate, Tensors

Kind = Literal["gradient", "delta"]


def save_update(path: str | os.PathLike[str], update: SharedUpdate) -> Path:
    """Write `update` as safetensors with a manifest; the file appears whole or not at all.

    Example:
        >>> save_update("u.safetensors", update)  # doctest: +SKIP
        >>> load_update("u.safetensors").kind  # doctest: +SKIP
        'gradient'
    """
    both = sorted(set(update.tensors) & set(update.buffers))
    if both:
        raise BadInputError(f"tensor {show(both[0])} is both a parameter and a buffer; rename one of them")
    tensors = {**update.tensors, **update.buffers}
    # Before the manifest, which lists the names.
    check_storable(tensors)
    return write_tensors(path, tensors, {KEY: describe(update).model_dump_json()})


def load_update(
    path: str | os.PathLike[str],
    *,
    kind: Kind | None = None,
    before: str | os.PathLike[str] | Tensors | None = None,
    local: LocalTraining | None = None,
    num_examples: int | None = None,
    names: Sequence[str] | None = None,
    budget_mb: float | None = None,
) -> SharedUpdate:
    """Read an update from safetensors, .npz, .npy or .pt; nothing in the file is ever executed.

    Args:
        path: A regular file. One written by `save_update` needs no other argument.
        kind: "gradient" or "delta"; "gradient" when neither caller nor file says.
        before: The weights before training, as a state dict or its file; `path` then holds the weights after.
        local: How the client trained.
        num_examples: How many examples are behind the update.
        names: Names for a file of tensors without names ("0", "1", …), in its order.
        budget_mb: Most memory the tensors may take, in megabytes; 2048 unless given or said by LEAKSCOPE_BUDGET_MB.

    Raises:
        BadInputError: The file is not what it should be; nothing was loaded.
    """
    if kind not in (None, "gradient", "delta"):
        raise UsageError(f"kind must be 'gradient' or 'delta', got {kind!r}")
    if before is not None and kind == "gradient":
        raise UsageError("before= makes a delta of two states, got kind='gradient'; leave one of them out")
    with open_source(path, budget_mb=budget_mb) as source:
        loaded, metadata = read_any(source)
        manifest = parse(source, metadata[KEY], set(loaded)) if KEY in metadata else None
        if manifest is not None:
            _agree(source, manifest, kind=kind, local=local, num_examples=num_examples, before=before)
            return _with_manifest(loaded, manifest, local=local, num_examples=num_examples)
        tensors = loaded if names is None else _rename(source, loaded, names)
        if before is None:
            return _plain(source, tensors, kind=kind or "gradient", local=local, num_examples=num_examples)
    earlier = load_state(before, budget_mb=budget_mb) if isinstance(before, str | os.PathLike) else before
    return delta(earlier, tensors, local=local, num_examples=num_examples)


def read_kind(path: str | os.PathLike[str], *, budget_mb: float | None = None) -> Kind | None:
    """What an update file says it holds; None for plain tensors, which say nothing."""
    with open_source(path, budget_mb=budget_mb) as source:
        loaded, metadata = read_any(source)
        return parse(source, metadata[KEY], set(loaded)).kind if KEY in metadata else None


def load_state(path: str | os.PathLike[str], *, budget_mb: float | None = None) -> dict[str, Tensor]:
    """Read named tensors (weights, a state dict) from any supported format, on the CPU."""
    return read_tensors(path, budget_mb=budget_mb)[0]


def _agree(source: ByteSource, manifest: Manifest, **given: object) -> None:
    stored = {"kind": manifest.kind, "local": manifest.local_training(), "num_examples": manifest.num_examples}
    if given.pop("before") is not None:
        raise source.error(f"before= needs a file of weights, this is a saved {manifest.kind}; leave before out")
    for field, value in given.items():
        if value is not None and stored[field] is not None and value != stored[field]:
            raise source.error(f"the file says {field}={stored[field]}, the caller {field}={value}; drop the argument")


def _with_manifest(
    loaded: Tensors, manifest: Manifest, *, local: LocalTraining | None, num_examples: int | None
) -> SharedUpdate:
    return SharedUpdate(
        manifest.kind,
        {name: loaded[name] for name in manifest.tensors},
        manifest.num_examples or num_examples,
        manifest.local_training() or local,
        {name: loaded[name] for name in manifest.buffers},
    )


def _plain(
    source: ByteSource, tensors: Tensors, *, kind: Kind, local: LocalTraining | None, num_examples: int | None
) -> SharedUpdate:
    parameters, buffers = split_buffers(tensors)
    if not parameters:
        raise source.error("expected parameters, got running statistics only; save the whole update")
    return SharedUpdate(kind, parameters, num_examples, local, buffers)


def _rename(source: ByteSource, tensors: Tensors, names: Sequence[str]) -> dict[str, Tensor]:
    if list(tensors) != [str(index) for index in range(len(tensors))]:
        raise source.error("names= is for files without names, this one has its own; leave names out")
    if len(names) != len(tensors) or len(set(names)) != len(names):
        raise source.error(f"expected {len(tensors)} different names, got {len(set(names))}; name each tensor once")
    return dict(zip(names, tensors.values(), strict=True))
