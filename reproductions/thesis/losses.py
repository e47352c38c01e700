"""GRNN with the other loss functions of the thesis's ablation: Table 3.12."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import leakscope as ls
from leakscope.attacks.grnn import grnn
from leakscope.matching.distances import Cosine, Distance, SquaredL2, SquaredPlusNorm, Wasserstein
from leakscope.matching.distances.distance import Grouped, flat, spread
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.types import Status


@dataclass(frozen=True)
class Norm(Distance):
    """‖d‖ over all tensors taken as one vector d = g − t: what the release computes as its Wasserstein distance."""

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Return ‖d‖ per group."""
        squares = [flat(found[name] - target[name]).square().sum(1) for name in target]
        return torch.stack(squares).sum(0).clamp_min(1e-24).sqrt()

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """Cotangent d / ‖d‖."""
        value = self.value(found, target)
        gaps = {name: found[name] - target[name] for name in target}
        return value, {name: gap / spread(value, gap) for name, gap in gaps.items()}


@dataclass(frozen=True)
class Total(Distance):
    """The sum of several distances, all of weight 1 as in the thesis."""

    parts: tuple[Distance, ...]

    def value(self, found: Grouped, target: Grouped) -> Tensor:
        """Return the sum per group."""
        return torch.stack([part.value(found, target) for part in self.parts]).sum(0)

    def value_and_cotangent(self, found: Grouped, target: Grouped) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of the cotangents."""
        both = [part.value_and_cotangent(found, target) for part in self.parts]
        pulled = {name: torch.stack([one[1][name] for one in both]).sum(0) for name in target}
        return torch.stack([one[0] for one in both]).sum(0), pulled


# Rows of the table, and the text's Wasserstein distance, which sorts, beside the release's, which does not.
DISTANCES: dict[str, Distance] = {
    "MSE": SquaredL2(),
    "WD": Norm(),
    "CD": Cosine(),
    "MSE & WD": SquaredPlusNorm(),
    "MSE & CD": Total((SquaredL2(), Cosine())),
    "MSE & CD & TVLoss": Total((SquaredL2(), Cosine())),
    "MSE & WD & TVLoss": SquaredPlusNorm(),
    "WD, sorted": Wasserstein(),
    "MSE & WD & TVLoss, sorted": Wasserstein(squared=True),
}
VARIATION = 1e-3


def grnn_with(loss: str, *, steps: int, width: int = 32) -> GradientMatching:
    """GRNN as published, with another loss; the variation counts where the loss names it."""
    attack = grnn(schedule="paper", steps=steps, width=width, tv=VARIATION if "TVLoss" in loss else 0.0)
    return attack.revised(lambda recipe: replace(recipe, distance=DISTANCES[loss]))


def rebuild_with_loss(
    *,
    loss: str,
    model: Mapping[str, Any],
    data: str,
    indices: Sequence[Sequence[int]],
    steps: int,
    width: int = 32,
    size: int | None = None,
    seed: int = 0,
) -> CallValues:
    """`psnr`, `ssim`, `mse`, `label_correct`, `is_ok`, one number per victim, and the last victim's pictures."""
    values: dict[str, list[float]] = {}
    pictures: dict[str, Tensor] = {}
    for place, rows in enumerate(indices):
        batch = ls.data.load(data, indices=list(rows), size=size)
        network = build_network(model, data, batch)
        seen = ls.observe(network, ls.share(network, batch), scenario="C", truth=batch)
        found = grnn_with(loss, steps=steps, width=width).reconstruct(seen, seed + place, diagnosing=False)
        scores = ls.score(found, batch)
        for name in ("psnr", "ssim", "mse"):
            values.setdefault(name, []).append(float(scores.metrics[name].mean()))
        values.setdefault("label_correct", []).append(float(scores.label_correct.float().mean()))
        values.setdefault("is_ok", []).append(float(found.status is Status.OK))
        pictures = {"truth": batch.inputs, "reconstruction": found.inputs[scores.assignment].clamp(0, 1)}
    return CallValues(values, pictures)
