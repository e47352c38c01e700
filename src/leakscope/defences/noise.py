"""Additive noise on the shared update: Gaussian or Laplacian, of a fixed scale per entry."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Generator, Tensor

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.defence import UpdateDefence
from leakscope.option_ranges import check_defence_option
from leakscope.types import Tensors

PAPER = "Zhu, Liu, Han: Deep Leakage from Gradients, NeurIPS 2019, section 5 (noise as a defence)"


@dataclass(frozen=True)
class GaussianNoise(UpdateDefence):
    """g + N(0, σ²) on every entry. Not differential privacy: nothing bounds the gradient."""

    sigma: float
    name: str = "gaussian-noise"
    paper: str = PAPER

    # Under noise an exact match means nothing: the attack with the strong prior on images does best.
    strong_attacks = ("inverting-gradients:tv=1.0",)

    def __post_init__(self) -> None:
        check_defence_option("gaussian-noise", "sigma", self.sigma)

    def adapt(self, attack: Attack) -> Attack:
        """The attacker knows the variance."""
        return attack.revised(lambda recipe: replace(recipe, noise=recipe.noise + self.sigma**2))

    def rewrite(self, tensors: Tensors, rng: Generator) -> dict[str, Tensor]:
        """Add independent noise to every entry."""
        return {name: value + self.sigma * random.normal_like(value, rng) for name, value in tensors.items()}


@dataclass(frozen=True)
class LaplacianNoise(UpdateDefence):
    """g + Laplace(0, b) on every entry; variance 2b²."""

    scale: float
    name: str = "laplacian-noise"
    paper: str = PAPER

    # Under noise an exact match means nothing: the attack with the strong prior on images does best.
    strong_attacks = ("inverting-gradients:tv=1.0",)

    def __post_init__(self) -> None:
        check_defence_option("laplacian-noise", "scale", self.scale)

    def adapt(self, attack: Attack) -> Attack:
        """The attacker knows the variance."""
        return attack.revised(lambda recipe: replace(recipe, noise=recipe.noise + 2 * self.scale**2))

    def rewrite(self, tensors: Tensors, rng: Generator) -> dict[str, Tensor]:
        """Add independent noise to every entry."""
        return {name: value + self.scale * random.laplace_like(value, rng) for name, value in tensors.items()}


def gaussian_noise(sigma: float = 1e-2) -> GaussianNoise:
    """Gaussian noise of standard deviation `sigma` on every shared entry."""
    return GaussianNoise(sigma)


def laplacian_noise(scale: float = 1e-2) -> LaplacianNoise:
    """Laplacian noise of scale `scale` on every shared entry."""
    return LaplacianNoise(scale)
