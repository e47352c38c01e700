"""Residual networks, told by what they compute and not by what they are called."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from leakscope.networks.forward import run
from leakscope.networks.layers import norm_layers
from leakscope.networks.settle import noise_inputs

_ADDITIONS = (torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor)
_FORWARD_ERRORS = (RuntimeError, ValueError, TypeError, IndexError)
# Examples, channels, height, width.
_PICTURE_AXES = 4


def is_residual_with_stored_statistics(model: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Whether a network normalises by stored statistics and adds two of its feature maps somewhere.

    Both maps have four axes and one shape: a bias, a position or a constant does not count, and neither does joining
    maps one behind the other, as in DenseNet. A network that cannot be run on noise is taken for another one.
    """
    stored = [one for one in norm_layers(model).values() if not one.training and one.running_mean is not None]
    if not stored:
        return False
    found = _Additions()
    try:
        with torch.no_grad(), found:
            run(model, noise_inputs(model, input_shape), seed=0)
    except _FORWARD_ERRORS:
        return False
    return found.count > 0


class _Additions(TorchDispatchMode):
    """Counts additions of two feature maps, however they are written."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Look at the call, and make it."""
        if func in _ADDITIONS and all(isinstance(one, Tensor) and one.ndim == _PICTURE_AXES for one in args[:2]):
            self.count += args[0].shape == args[1].shape
        return func(*args, **(kwargs or {}))
