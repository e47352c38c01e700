"""What the network itself says of candidates: their batch-norm statistics, and the labels it predicts for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.matching.labels.last_layer import probabilities
from leakscope.matching.penalties.penalty import Penalty, Trial
from leakscope.networks import norm_layers, norm_statistics, run
from leakscope.types import Observation

Statistics = dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class BatchNormPrior(Penalty):
    """GradInversion: candidates should give the statistics that private data gave.

    R(x) = Σ over layers ‖mean(x) − m‖ + ‖var(x) − v‖, with m and v the running statistics of the network, or the exact
    ones of the batch where the scenario grants them.

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


@dataclass(frozen=True)
class LabelTerm(Penalty):
    """CPL: mean ‖p(x) − y‖², p the softmax, or the sigmoid of one logit: zero where the network predicts the label.

    It is not zero at the truth unless the network is trained, so its weight must be small.
    """

    weight: float
    relative: bool = False

    def value(self, trial: Trial) -> Tensor:
        """Return the mean squared error of the predictions per group."""
        groups, count = trial.images.shape[:2]
        # In training mode batch normalisation mixes what it sees at once: groups stay apart.
        logits = torch.stack([run(trial.model, trial.images[group]) for group in range(groups)])
        targets = trial.targets
        if not targets.is_floating_point() and logits.shape[-1] > 1:
            targets = functional.one_hot(targets, logits.shape[-1])
        gap = probabilities(logits) - targets.to(logits).reshape(groups, count, -1)
        return gap.square().sum(-1).mean(1)
