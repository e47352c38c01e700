"""GradInversion's batch-norm prior: candidates should give the statistics that private data gave.

R(x) = Σ over layers ‖mean(x) − m‖ + ‖var(x) − v‖, with m and v the running statistics of the network, or
the exact ones of the batch where the scenario grants them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakscope.matching.penalties.penalty import Penalty
from leakscope.matching.trial import Trial
from leakscope.networks import norm_layers, norm_statistics
from leakscope.types import Observation

Statistics = dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class BatchNormPrior(Penalty):
    """Distance of the candidates' statistics from the target's, summed over batch-norm layers.

    Zero for networks without batch normalisation and for layers that keep no running statistics.
    """

    weight: float
    relative: bool = False

    def value(self, trial: Trial) -> Tensor:
        """Return Σ ‖mean − m‖ + ‖var − v‖ per group."""
        if not norm_layers(trial.model):
            # Zero, but still a function of the images: the engine differentiates it.
            return 0 * trial.images.flatten(1).sum(1)
        return torch.stack([self._group(trial, group) for group in range(len(trial.images))])

    def _group(self, trial: Trial, group: int) -> Tensor:
        wanted = target_statistics(trial.model, trial.seen[group // trial.restarts] if trial.seen else None)
        images = trial.images[group]
        found = norm_statistics(trial.model, images)
        total = 0 * images.sum()
        for name, (mean, variance) in wanted.items():
            if name in found:
                total = total + _norm(found[name][0] - mean) + _norm(found[name][1] - variance)
        return total


def target_statistics(model: nn.Module, seen: Observation | None) -> Statistics:
    """Mean and variance to reach, by layer: exact where `seen` holds them, else running ones."""
    exact = seen.batch_statistics if seen is not None else None
    if exact:
        names = {name.removesuffix(".mean") for name in exact if name.endswith(".mean")}
        return {name: (exact[f"{name}.mean"], exact[f"{name}.var"]) for name in sorted(names)}
    return {
        name: (layer.running_mean, layer.running_var)
        for name, layer in norm_layers(model).items()
        if layer.running_mean is not None and layer.running_var is not None
    }


def _norm(gap: Tensor) -> Tensor:
    # The derivative of a plain norm is not finite at zero, where exact statistics end.
    return (gap.square().sum() + 1e-12).sqrt()
