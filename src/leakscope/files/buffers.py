"""Telling parameters from the running statistics that travel with them in a state dict."""

from __future__ import annotations

from torch import Tensor

from leakscope.types import Tensors

_BUFFER_NAMES = ("running_mean", "running_var", "num_batches_tracked")


def split_buffers(tensors: Tensors) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return (parameters, buffers), judged by name where no model is at hand."""
    parameters, buffers = {}, {}
    for name, value in tensors.items():
        (buffers if name.rsplit(".", 1)[-1] in _BUFFER_NAMES else parameters)[name] = value
    return parameters, buffers
