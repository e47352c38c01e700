"""A defence that uses every place where a defence can act; in one file, and no other file knows of it."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.defence import ClientHooks, Defence, Hardened, StepContext
from leakscope.types import Batch, SealedUpdate, SharedUpdate


class Lock(nn.Module):
    """A private factor on every logit."""

    def __init__(self, factors: Tensor) -> None:
        super().__init__()
        self.key = nn.Parameter(factors)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.key


def calm_cross_entropy(output: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy, and a price on large logits."""
    return functional.cross_entropy(output, targets) + 0.01 * output.square().mean()


@dataclass(frozen=True)
class Guarded(Defence):
    """Mirrors pictures, bounds each example's gradient, scales each step's, adds noise to the update, keeps a lock."""

    bound: float = 1.0
    sigma: float = 1e-3
    name: str = "guarded"
    paper: str = "a double for tests"
    changes_network = True

    def harden(self, model: nn.Module, *, seed: int = 0) -> Hardened:
        layers = OrderedDict(copy.deepcopy(model).named_children())
        outputs = [layer for layer in layers.values() if isinstance(layer, nn.Linear)][-1].out_features
        first = next(model.parameters())
        factors = 1 + 0.5 * random.uniform((outputs,), random.generator(seed, "lock"), like=first)
        client = nn.Sequential(OrderedDict([*layers.items(), ("lock", Lock(factors))])).train(model.training)
        return Hardened(client, model, loss=calm_cross_entropy, private=frozenset({"lock.key"}))

    def hooks(self) -> ClientHooks:
        return ClientHooks(self._mirror, self._bound, self._halve, self._blur)

    def adapt(self, attack: Attack) -> Attack:
        return attack.revised(lambda recipe: replace(recipe, noise=recipe.noise + self.sigma**2))

    def _mirror(self, batch: Batch, rng: Generator) -> Batch:
        return replace(batch, inputs=batch.inputs.flip(-1))

    def _bound(self, gradients: dict[str, Tensor], step: StepContext) -> dict[str, Tensor]:
        flat = torch.cat([value.flatten(1) for value in gradients.values()], dim=1)
        factor = (self.bound / flat.norm(dim=1).clamp_min(1e-12)).clamp_max(1.0)
        return {name: value * factor.reshape(-1, *[1] * (value.ndim - 1)) for name, value in gradients.items()}

    def _halve(self, gradient: dict[str, Tensor], step: StepContext) -> dict[str, Tensor]:
        return {name: 0.5 * value for name, value in gradient.items()}

    def _blur(self, update: SharedUpdate, rng: Generator) -> SharedUpdate | SealedUpdate:
        noisy = {name: value + self.sigma * random.normal_like(value, rng) for name, value in update.tensors.items()}
        return replace(update, tensors=noisy)


def guarded(*, bound: float = 1.0, sigma: float = 1e-3) -> Guarded:
    """As the command line names it."""
    return Guarded(bound, sigma)
