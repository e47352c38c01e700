"""Norm clipping: scale the whole update down to a bound."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Generator, Tensor

from leakscope.attack import Attack
from leakscope.defence import UpdateDefence
from leakscope.option_ranges import check_defence_option
from leakscope.tensors import global_norm, map_tensors
from leakscope.types import Tensors

PAPER = "Abadi et al.: Deep Learning with Differential Privacy, CCS 2016 (clipping alone, no noise)"


@dataclass(frozen=True)
class Clip(UpdateDefence):
    """g · min(1, norm/‖g‖) over all tensors together."""

    norm: float
    name: str = "clip"
    paper: str = PAPER

    def __post_init__(self) -> None:
        check_defence_option("clip", "norm", self.norm)

    def adapt(self, attack: Attack) -> Attack:
        """The attacker knows that candidates may be longer than what was shared."""
        return attack.revised(lambda recipe: replace(recipe, distance=recipe.distance.clipped()))

    def rewrite(self, tensors: Tensors, rng: Generator) -> dict[str, Tensor]:
        """Scale all tensors by one factor."""
        factor = (self.norm / global_norm(tensors).clamp_min(1e-30)).clamp_max(1.0)
        return map_tensors(lambda value: value * factor, tensors)


def clip(norm: float = 1.0) -> Clip:
    """Clip the update to Euclidean norm `norm`."""
    return Clip(norm)
