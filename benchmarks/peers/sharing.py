"""What a client shares, in plain torch: one gradient, or the change of its weights after local training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import victim as victims


def gradient(model: nn.Module, images: Tensor, labels: Tensor) -> list[Tensor]:
    """Return the mean gradient of the batch."""
    loss = nn.functional.cross_entropy(model(images), labels)
    return list(torch.autograd.grad(loss, list(model.parameters())))


def change(model: nn.Module, images: Tensor, victim: victims.Victim, local: victims.Local) -> list[Tensor]:
    """After − before of local SGD, which breaching's client also shares under the name of gradients."""
    trained = victim.network()
    optimiser = torch.optim.SGD(trained.parameters(), lr=local.lr)
    for chosen in local.order():
        optimiser.zero_grad()
        nn.functional.cross_entropy(trained(images[chosen]), victim.labels[chosen]).backward()
        optimiser.step()
    pairs = zip(trained.parameters(), model.parameters(), strict=True)
    return [after.detach() - before.detach() for after, before in pairs]
