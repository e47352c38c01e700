"""Activations that can be undone, with their inverse and derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

# An output on or past the edge of the range is rounding; its preimage is put this far inside.
_INSIDE = 1e-12


def _leaky(module: nn.Module, values: Tensor) -> Tensor:
    assert isinstance(module, nn.LeakyReLU)
    return torch.where(values >= 0, values, values / module.negative_slope)


def _sigmoid(_module: nn.Module, values: Tensor) -> Tensor:
    return torch.logit(values, eps=_INSIDE)


def _tanh(_module: nn.Module, values: Tensor) -> Tensor:
    return torch.atanh(values.clamp(-1 + _INSIDE, 1 - _INSIDE))


_INVERSES: dict[type[nn.Module], Callable[[nn.Module, Tensor], Tensor]] = {
    nn.LeakyReLU: _leaky,
    nn.Sigmoid: _sigmoid,
    nn.Tanh: _tanh,
}


def invertible(module: nn.Module) -> bool:
    """Whether every output has exactly one preimage that is known here."""
    if isinstance(module, nn.LeakyReLU):
        return module.negative_slope > 0
    return type(module) in _INVERSES


def undo(activations: Sequence[nn.Module], outputs: Tensor) -> Tensor:
    """The values that `activations`, applied in turn, mapped to `outputs`."""
    for module in reversed(activations):
        outputs = _INVERSES[type(module)](module, outputs)
    return outputs


def apply(activations: Sequence[nn.Module], inputs: Tensor) -> Tensor:
    """The activations in turn; out of place, whatever the layer was told."""
    for module in activations:
        if isinstance(module, nn.LeakyReLU):
            inputs = nn.functional.leaky_relu(inputs, module.negative_slope)
        else:
            inputs = module(inputs)
    return inputs


def slope(activations: Sequence[nn.Module], inputs: Tensor) -> Tensor:
    """Elementwise derivative of the activations, applied in turn, at `inputs`."""
    if not activations:
        return torch.ones_like(inputs)
    with torch.enable_grad():
        leaf = inputs.detach().requires_grad_()
        (found,) = torch.autograd.grad(apply(activations, leaf).sum(), leaf)
    return found
