"""CPL's label regulariser: the network should predict the label that the candidate carries."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.matching.labels.soft import probabilities
from leakscope.matching.penalties.penalty import Penalty
from leakscope.matching.trial import Trial
from leakscope.networks import run


@dataclass(frozen=True)
class LabelTerm(Penalty):
    """mean ‖p(x) − y‖², p the softmax or the sigmoid of one logit: zero where the network predicts the label already.

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
