"""Whether a model can learn the targets of a batch, asked before a kernel fails on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from leakscope.client.gradient import run_network
from leakscope.errors import BadInputError
from leakscope.networks import check_output
from leakscope.tasks import Task
from leakscope.types import Batch


def check_targets(model: nn.Module, batch: Batch, *, own_loss: bool = False, task: Task | None = None) -> None:
    """Insist on class labels the model can predict, or on what else the declared `task` asks for.

    With `own_loss` the network's output is what that loss takes: labels are then compared only with
    scores that can be found in it.
    """
    if task is not None and not own_loss:
        task.check_targets(batch.targets, task.outputs(_probe(model, batch)))
        return
    if batch.targets.is_floating_point() or batch.targets.ndim != 1:
        return
    if batch.targets.dtype != torch.long:
        raise BadInputError(f"class labels must be int64, got {batch.targets.dtype}; convert them with .long()")
    output = _probe(model, batch)
    try:
        outputs = check_output(output).shape[1]
    except BadInputError:
        if own_loss:
            return
        raise
    # One score tells two classes apart, under a logistic loss.
    classes = max(2, outputs)
    low, high = int(batch.targets.min()), int(batch.targets.max())
    if low < 0 or high >= classes:
        raise BadInputError(
            f"labels must lie in 0…{classes - 1} for this model, got {low}…{high}; "
            "map the labels or build the model with more classes"
        )


def _probe(model: nn.Module, batch: Batch) -> Any:
    """What the model returns for the first example, twice: batch normalisation in training mode refuses one."""
    probe = batch.inputs[:1].expand(2, *batch.inputs.shape[1:])
    try:
        # Active dropout would otherwise advance the caller's random numbers.
        with torch.no_grad(), torch.random.fork_rng():
            return run_network(model, {}, probe)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(
            f"the model does not accept inputs of shape {list(batch.inputs.shape)} in {batch.inputs.dtype}: {error}; "
            "convert the batch with .to(), or use the model it belongs to"
        ) from error
