"""signSGD: share one bit per entry, and one size per tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Generator, Tensor

from leakscope.attack import Attack
from leakscope.defence import UpdateDefence
from leakscope.matching.distances import SoftSigned
from leakscope.types import Tensors

PAPER = (
    "Bernstein, Wang, Azizzadenesheli, Anandkumar: signSGD: Compressed Optimisation for Non-Convex Problems, ICML 2018"
)


@dataclass(frozen=True)
class Sign(UpdateDefence):
    """mean|g| · sign(g), tensor by tensor; without `scaled` the bare sign."""

    scaled: bool = True
    name: str = "sign"
    paper: str = PAPER

    def adapt(self, attack: Attack) -> Attack:
        """The attacker takes signs of its candidates' gradients too, softly, so that they can be differentiated.

        A sign says little of a number, so that all of them are compared.
        """
        return attack.revised(
            lambda recipe: replace(recipe, distance=SoftSigned(recipe.distance, scaled=self.scaled), steady=None)
        )

    def rewrite(self, tensors: Tensors, rng: Generator) -> dict[str, Tensor]:
        """Replace every entry by its sign; an exact zero stays one."""
        return {name: value.sign() * (value.abs().mean() if self.scaled else 1.0) for name, value in tensors.items()}


def sign(*, scaled: bool = True) -> Sign:
    """Share the sign of every entry, times the mean magnitude of its tensor."""
    return Sign(scaled)
