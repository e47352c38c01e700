"""State dicts: which of their tensors are trained, and the update between two of them."""

from __future__ import annotations

import torch
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.files.opening import show
from leakscope.types import LocalTraining, SharedUpdate, Tensors

_BUFFER_NAMES = ("running_mean", "running_var", "num_batches_tracked")


def split_buffers(tensors: Tensors) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return (parameters, buffers), judged by name where no model is at hand."""
    parameters, buffers = {}, {}
    for name, value in tensors.items():
        (buffers if name.rsplit(".", 1)[-1] in _BUFFER_NAMES else parameters)[name] = value
    return parameters, buffers


def delta(
    before: Tensors, after: Tensors, *, local: LocalTraining | None = None, num_examples: int | None = None
) -> SharedUpdate:
    """Return the update Δ = after − before of two state dicts.

    Running statistics and integers are not weights: they go to `buffers` with their value after
    training, which is what a client that shares its whole state sends.

    Example:
        >>> update = delta({"w": torch.zeros(2)}, {"w": torch.ones(2)})
        >>> update.kind, update.tensors["w"].tolist()
        ('delta', [1.0, 1.0])
    """
    odd = sorted(set(before) ^ set(after))
    if odd:
        side = "before" if odd[0] in before else "after"
        raise BadInputError(
            f"before and after must hold the same tensors; {show(odd[0])} is only in {side} "
            f"({len(odd)} differ); pass the two states of the same model"
        )
    weights, buffers = split_buffers(after)
    integers = {name: value for name, value in weights.items() if not value.is_floating_point()}
    changes = {name: _subtract(name, before[name], weights[name]) for name in weights if name not in integers}
    if not changes:
        raise BadInputError("before and after hold no floating-point weights; pass the two states of the same model")
    return SharedUpdate("delta", changes, num_examples, local, buffers | integers)


def _subtract(name: str, before: Tensor, after: Tensor) -> Tensor:
    if before.shape != after.shape or before.dtype != after.dtype:
        raise BadInputError(
            f"tensor {show(name)}: before is {list(before.shape)} {before.dtype}, after is {list(after.shape)} "
            f"{after.dtype}; pass the two states of the same model"
        )
    # Half precision keeps too few digits for a small difference of large weights.
    wide = torch.float32 if after.dtype in (torch.float16, torch.bfloat16) else after.dtype
    return (after.detach().to(wide) - before.detach().to(device=after.device, dtype=wide)).clone()
