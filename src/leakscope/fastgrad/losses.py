"""The loss at the end of the network: its gradient in the logits, and how that gradient moves.

A rule works per group: logits [G, n, K], targets [G, n] or probabilities [G, n, K], loss the
mean over n. Three functions of it are needed: r = ∂L/∂z, its tangent Hż, and, for soft
targets, ∂⟨r, ż⟩/∂targets.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.types import Loss


class LossRule(Protocol):
    """A loss seen from the logits."""

    def find_residual(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return ∂L/∂logits."""
        ...

    def push_residual(self, logits: Tensor, targets: Tensor, *, change: Tensor) -> Tensor:
        """Return the tangent of the residual when the logits move along `change`."""
        ...

    def pull_to_targets(self, logits: Tensor, targets: Tensor, *, change: Tensor) -> Tensor:
        """Return the derivative of ⟨residual, change⟩ in soft targets."""
        ...


class CrossEntropyRule:
    """Mean cross-entropy: r = (softmax·Σp − p)/n."""

    def find_residual(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return (softmax·Σp − p)/n."""
        probabilities = logits.softmax(-1)
        if targets.is_floating_point():
            return (probabilities * targets.sum(-1, keepdim=True) - targets) / logits.shape[1]
        ones = torch.full_like(probabilities[..., :1], -1.0)
        return probabilities.scatter_add_(-1, targets.unsqueeze(-1), ones) / logits.shape[1]

    def push_residual(self, logits: Tensor, targets: Tensor, *, change: Tensor) -> Tensor:
        """Return Σp·(s⊙ż − s·⟨s, ż⟩)/n with s the softmax."""
        probabilities = logits.softmax(-1)
        moved = probabilities * (change - (probabilities * change).sum(-1, keepdim=True))
        if targets.is_floating_point():
            moved = moved * targets.sum(-1, keepdim=True)
        return moved / logits.shape[1]

    def pull_to_targets(self, logits: Tensor, targets: Tensor, *, change: Tensor) -> Tensor:
        """Return (⟨s, ż⟩ − ż)/n."""
        mean = (logits.softmax(-1) * change).sum(-1, keepdim=True)
        return (mean - change) / logits.shape[1]


class AutogradRule:
    """Any loss(logits, targets) → scalar, by autograd on the logits alone."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def find_residual(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return ∂L/∂logits."""
        with torch.enable_grad():
            z = logits.detach().requires_grad_()
            return torch.autograd.grad(self._sum_losses(z, targets), z)[0]

    def push_residual(self, logits: Tensor, targets: Tensor, *, change: Tensor) -> Tensor:
        """Return the Hessian in the logits times `change`."""
        with torch.enable_grad():
            z = logits.detach().requires_grad_()
            inner = self._along(z, targets, change)
            # A loss that is linear in the logits has no curvature, and no graph to follow.
            found = torch.autograd.grad(inner, z, allow_unused=True)[0] if inner.requires_grad else None
            return torch.zeros_like(logits) if found is None else found

    def pull_to_targets(self, logits: Tensor, targets: Tensor, *, change: Tensor) -> Tensor:
        """Return ∂⟨∂L/∂z, change⟩/∂targets."""
        with torch.enable_grad():
            z, p = logits.detach().requires_grad_(), targets.detach().requires_grad_()
            inner = self._along(z, p, change)
            found = torch.autograd.grad(inner, p, allow_unused=True)[0] if inner.requires_grad else None
            return torch.zeros_like(targets) if found is None else found

    def _sum_losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        return torch.stack([self.loss(z, t) for z, t in zip(logits, targets, strict=True)]).sum()

    def _along(self, logits: Tensor, targets: Tensor, change: Tensor) -> Tensor:
        slope = torch.autograd.grad(self._sum_losses(logits, targets), logits, create_graph=True)[0]
        return (slope * change).sum()


def choose_rule(loss: Loss) -> LossRule:
    """Choose the closed form for plain mean cross-entropy, autograd on the logits for the rest."""
    if loss is functional.cross_entropy:
        return CrossEntropyRule()
    if isinstance(loss, nn.CrossEntropyLoss) and type(loss) is nn.CrossEntropyLoss:
        chosen = (loss.weight, loss.reduction, loss.label_smoothing, loss.ignore_index)
        if chosen == (None, "mean", 0.0, -100):
            return CrossEntropyRule()
    return AutogradRule(loss)
