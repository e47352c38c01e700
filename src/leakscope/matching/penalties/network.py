"""What the network itself says of candidates: their batch-norm statistics, and the labels it predicts for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.matching.labels.last_layer import probabilities
from leakscope.matching.penalties.penalty import Penalty, Trial
from leakscope.networks import norm_layers, norm_statistics, run
from leakscope.types import Observation, Tensors

Statistics = dict[str, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class BatchNormPrior(Penalty):
    """GradInversion: candidates should give the statistics that private data gave.

    R(x) = Σ over layers ‖mean(x) − m‖ + ‖var(x) − v‖, with m and v the statistics of the batch where the scenario
    grants them, sent buffers tell them or public inputs stand for them, else the running statistics of the network.

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
    """Mean and variance to reach, by layer: those of the batch where `seen` holds them, else running ones."""
    known: Tensors = (seen.batch_statistics or {}) if seen is not None else {}
    found: Statistics = {}
    for name, layer in norm_layers(model).items():
        if f"{name}.mean" in known:
            found[name] = (known[f"{name}.mean"], known[f"{name}.var"])
        elif layer.running_mean is not None and layer.running_var is not None:
            found[name] = (layer.running_mean, layer.running_var)
    return found


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
