"""Texts of the user's own as tokens: whole numbers that a network looks up in its embedding."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from leakscope.data.npz import list_own_parts, read_pair
from leakscope.data.own import call_own
from leakscope.errors import BadInputError, UsageError
from leakscope.types import Batch

_NPZ = ".npz"
_EXPECTED = (
    "texts as whole numbers [n, length], with labels [n] or the token to be predicted at every place [n, length]"
)


def load_texts(name: str, *, vocabulary: int, allow_code: bool = False) -> Batch:
    """All texts of an .npz file, or of what `package.module:function` returns, in the order they are held.

    Args:
        name: Path of an .npz file, or `package.module:function`, which returns a pair of tensors or arrays, or a Batch.
        vocabulary: How many tokens the network knows.
        allow_code: Whether `name` comes from the command line, so that the user's own code may run.

    Raises:
        BadInputError: Something else than tokens of this vocabulary.
    """
    if name.lower().endswith(_NPZ):
        path = Path(name).expanduser()
        pairs = list_own_parts(path)
        parts = [read_pair(path, pairs[part]) for part in ("train", "test") if part in pairs]
    else:
        returned: Mapping[str, object] = call_own(name, allow_code=allow_code)
        parts = [_as_pair(name, returned[part]) for part in ("train", "test") if part in returned]
    return _join(Path(name).name, parts, vocabulary=vocabulary)


def _as_pair(name: str, value: object) -> tuple[Tensor, Tensor]:
    if isinstance(value, Batch):
        return value.inputs, value.targets
    if isinstance(value, tuple | list) and len(value) == 2:
        inputs, targets = (torch.from_numpy(one) if isinstance(one, np.ndarray) else one for one in value)
        if isinstance(inputs, Tensor) and isinstance(targets, Tensor):
            return inputs, targets
    raise UsageError(f"{name!r} returned a {type(value).__name__}; expected a pair of tensors or arrays: {_EXPECTED}")


def _is_whole(values: Tensor, *, axes: tuple[int, ...]) -> bool:
    odd = values.is_floating_point() or values.is_complex() or values.dtype == torch.bool
    return not odd and values.ndim in axes and values.numel() > 0


def _join(name: str, parts: list[tuple[Tensor, Tensor]], *, vocabulary: int) -> Batch:
    for inputs, targets in parts:
        if not _is_whole(inputs, axes=(2,)) or not _is_whole(targets, axes=(1, 2)):
            raise BadInputError(
                f"{name}: expected {_EXPECTED}, got {inputs.dtype} of shape {list(inputs.shape)} and {targets.dtype} "
                f"of shape {list(targets.shape)}; the network looks its inputs up in an embedding"
            )
        if int(inputs.min()) < 0 or int(inputs.max()) >= vocabulary:
            raise BadInputError(
                f"{name}: tokens must lie in 0…{vocabulary - 1}, the rows of the network's embedding, got "
                f"{int(inputs.min())}…{int(inputs.max())}; use the tokenizer that belongs to the network"
            )
    if len({(inputs.shape[1:], targets.shape[1:]) for inputs, targets in parts}) > 1:
        raise BadInputError(f"{name}: the texts of train and test differ in length; fill them up to one length")
    inputs, targets = (torch.cat(side).detach().cpu().long() for side in zip(*parts, strict=True))
    return Batch(inputs, targets, None)
