"""PRECODE: a variational bottleneck before the classifier, whose noise makes the gradient a random one.

Scheliga, Mäder, Seeland: PRECODE – A Generic Model Extension to Prevent Deep Gradient Leakage, WACV 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.defence import Defence, Hardened
from leakscope.defences.insert import build_linear, replace_layer
from leakscope.errors import UnsuitableError, UsageError, suggest
from leakscope.networks import UnknownTensors, copy_network
from leakscope.types import Observation

PAPER = (
    "Scheliga, Mäder, Seeland: PRECODE: A Generic Model Extension to Prevent Deep Gradient Leakage, WACV 2022, "
    "arXiv:2108.04725"
)


@dataclass(frozen=True)
class Coded:
    """What a network with a bottleneck returns: its scores, and what the noise was drawn around, [n, K] each."""

    logits: Tensor
    mean: Tensor
    spread: Tensor

    @property
    def bits(self) -> Tensor:
        """KL(N(μ, σ²) ‖ N(0, 1)) in bits, summed over the K numbers, a mean over the examples."""
        nats = 0.5 * (self.mean.square() + self.spread.square() - 1) - self.spread.log()
        return nats.sum(1).mean() / math.log(2)


@dataclass(frozen=True)
class BottleneckLoss:
    """Cross-entropy + weight · KL in bits; of scores alone their cross-entropy."""

    weight: float

    def __call__(self, output: Coded | Tensor, targets: Tensor) -> Tensor:
        """The mean loss."""
        if isinstance(output, Tensor):
            # Labels are read off with scores that nothing was coded for: the KL term does not depend on them.
            return functional.cross_entropy(output, targets)
        return functional.cross_entropy(output.logits, targets) + self.weight * output.bits


class VariationalBottleneck(UnknownTensors):
    """r → μ, σ → z = μ + σ·ε → decoded features → the classifier. The noise is drawn in evaluation mode too."""

    of_examples = frozenset({"noise"})
    noise: Tensor

    def __init__(self, head: nn.Linear, width: int, rng: Generator) -> None:
        """Put a bottleneck of `width` numbers before `head`."""
        super().__init__()
        self.encode = build_linear(head.in_features, 2 * width, rng, like=head.weight)
        self.decode = build_linear(width, head.in_features, rng, like=head.weight)
        self.head = head
        # Empty: every pass draws its own. Whoever searches for the client's puts a row for every example here.
        self.register_buffer("noise", head.weight.new_empty(0, width), persistent=False)

    def forward(self, features: Tensor) -> Coded:
        """Scores through a sample, and the distribution it was drawn from."""
        mean, raw = self.encode(features).chunk(2, dim=-1)
        spread = functional.softplus(raw)
        noise = self.noise if len(self.noise) else torch.randn_like(mean)
        return Coded(self.head(self.decode(mean + spread * noise)), mean, spread)

    def start_unknowns(self, examples: int, rng: Generator) -> dict[str, Tensor]:
        """Noise as the client may have drawn it."""
        return {"noise": random.normal((examples, self.noise.shape[1]), rng, like=self.noise)}


@dataclass(frozen=True)
class BehindFirstLinear:
    """The tensors behind the first of the fully connected layers that end a network.

    The noise makes the long gradients of the bottleneck random, and hides in them what the short ones before it tell. A
    fully connected layer with bias gives its input away, g_W = g_b ⊗ input, whatever was drawn behind it: nothing more
    is learnt from what comes later.
    """

    def names(self, seen: Observation) -> tuple[str, ...]:
        """Their names."""
        modules = {name: module for name, module in seen.model.named_modules() if list(module.parameters(False))}
        last_other = max(
            (place for place, one in enumerate(modules.values()) if not isinstance(one, nn.Linear)), default=-1
        )
        behind = list(modules)[last_other + 2 :]
        return tuple(f"{name}.{key}" for name in behind for key, _ in modules[name].named_parameters(recurse=False))


@dataclass(frozen=True)
class Precode(Defence):
    """A network with a variational bottleneck before its classifier, and the loss that belongs to it."""

    width: int
    weight: float
    layer: str | None = None
    name: str = "precode"
    paper: str = PAPER
    changes_network = True
    # The noise comes after the first layers: a fully connected one that receives the input gives it away as before.
    strong_attacks = ("fc-inversion",)

    def __post_init__(self) -> None:
        if not isinstance(self.width, int) or self.width < 1:
            raise UsageError(f"precode needs a whole number width ≥ 1, got {self.width!r}")
        if not 0 <= self.weight < math.inf:
            raise UsageError(f"precode needs a finite weight ≥ 0 of its KL term, got {self.weight}")

    def harden(self, model: nn.Module, *, seed: int = 0) -> Hardened:
        """The network with a bottleneck, on both sides: nothing of it is private but the noise the client draws."""
        network = copy_network(model)
        linear = {name: module for name, module in network.named_modules() if isinstance(module, nn.Linear)}
        if not linear:
            raise UnsuitableError(
                "precode goes before a fully connected classifier, and this network has no nn.Linear; add one, or use "
                "key-lock, which needs a convolution"
            )
        if self.layer is not None and self.layer not in linear:
            raise UnsuitableError(
                f"the network has no fully connected layer {self.layer!r}.{suggest(self.layer, linear)}"
            )
        name = list(linear)[-1] if self.layer is None else self.layer
        inserted = VariationalBottleneck(linear[name], self.width, random.generator(seed, "precode"))
        hardened = replace_layer(network, name, inserted)
        return Hardened(hardened, hardened, loss=BottleneckLoss(self.weight))

    def adapt(self, attack: Attack) -> Attack:
        """The attacker searches for the noise that was drawn, beside the pictures, and matches what comes before it.

        Every round drew a noise of its own: rounds are taken by themselves, whatever else the attacker knows.
        """
        return attack.revised(
            lambda recipe: replace(
                recipe, unknowns=True, draws_anew=True, leave_out=(*recipe.leave_out, BehindFirstLinear())
            )
        )


def precode(width: int = 256, *, weight: float = 1e-3, layer: str | None = None) -> Precode:
    """Put a variational bottleneck of `width` numbers before the classifier.

    `weight` is that of the KL term, in bits. `layer` is the classifier by name, by default the last fully connected
    layer of the network.
    """
    return Precode(width, weight, layer)
