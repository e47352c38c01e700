"""Additive noise on the shared update: Gaussian or Laplacian, of a fixed scale or relative to each tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Generator, Tensor

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.defence import UpdateDefence
from leakscope.matching.recipe import Recipe
from leakscope.option_ranges import check_defence_option
from leakscope.types import Tensors

PAPER = "Zhu, Liu, Han: Deep Leakage from Gradients, NeurIPS 2019, section 5 (noise as a defence)"


@dataclass(frozen=True)
class GaussianNoise(UpdateDefence):
    """g + N(0, σ²) on every entry, or σ times the tensor's own deviation. Not differential privacy: nothing is bounded.

    With `relative` the standard deviation of a tensor's noise is σ · std(tensor), as in MKOR's released code.
    """

    sigma: float
    relative: bool = False
    name: str = "gaussian-noise"
    paper: str = PAPER

    # Under noise an exact match means nothing: the attack with the strong prior on images does best.
    strong_attacks = ("inverting-gradients:tv=1.0",)

    def __post_init__(self) -> None:
        check_defence_option("gaussian-noise", "sigma", self.sigma)

    def adapt(self, attack: Attack) -> Attack:
        """The attacker knows the variance, and that the noise of every round is drawn afresh."""
        return _tell(attack, self.sigma**2, relative=self.relative)

    def rewrite(self, tensors: Tensors, rng: Generator) -> dict[str, Tensor]:
        """Add independent noise to every entry."""
        return {
            name: value + self.sigma * _unit(value, self.relative) * random.normal_like(value, rng)
            for name, value in tensors.items()
        }


@dataclass(frozen=True)
class LaplacianNoise(UpdateDefence):
    """g + Laplace(0, b) on every entry, variance 2b²; with `relative` b · std(tensor) takes the place of b."""

    scale: float
    relative: bool = False
    name: str = "laplacian-noise"
    paper: str = PAPER

    # Under noise an exact match means nothing: the attack with the strong prior on images does best.
    strong_attacks = ("inverting-gradients:tv=1.0",)

    def __post_init__(self) -> None:
        check_defence_option("laplacian-noise", "scale", self.scale)

    def adapt(self, attack: Attack) -> Attack:
        """The attacker knows the variance, and that the noise of every round is drawn afresh."""
        return _tell(attack, 2 * self.scale**2, relative=self.relative)

    def rewrite(self, tensors: Tensors, rng: Generator) -> dict[str, Tensor]:
        """Add independent noise to every entry."""
        return {
            name: value + self.scale * _unit(value, self.relative) * random.laplace_like(value, rng)
            for name, value in tensors.items()
        }


def gaussian_noise(sigma: float = 1e-2, *, relative: bool = False) -> GaussianNoise:
    """Gaussian noise of standard deviation `sigma` on every shared entry."""
    return GaussianNoise(sigma, relative)


def laplacian_noise(scale: float = 1e-2, *, relative: bool = False) -> LaplacianNoise:
    """Laplacian noise of scale `scale` on every shared entry."""
    return LaplacianNoise(scale, relative)


def _unit(value: Tensor, relative: bool) -> Tensor | float:
    """What scales are counted in: 1, or the deviation of this tensor's entries, 0 where there is only one."""
    return value.std(correction=0) if relative else 1.0


def _tell(attack: Attack, variance: float, *, relative: bool) -> Attack:
    def told(recipe: Recipe) -> Recipe:
        if relative:
            # A later noise is relative to a tensor that holds the earlier one.
            both = (1 + recipe.relative_noise) * (1 + variance) - 1
            return replace(recipe, relative_noise=both, joins_rounds=True)
        return replace(recipe, noise=recipe.noise + variance, joins_rounds=True)

    return attack.revised(told) if variance > 0 else attack
