"""The federation round the client: averaging updates, and what a defence costs in accuracy."""

from __future__ import annotations

from leakscope.federated.aggregation import fedavg
from leakscope.federated.training import measure_utility
from leakscope.federated.trials import Trained, train_with
from leakscope.federated.utility import StepRatio, Utility, seeds_interval, wilson_interval

__all__ = [
    "StepRatio",
    "Trained",
    "Utility",
    "fedavg",
    "measure_utility",
    "seeds_interval",
    "train_with",
    "wilson_interval",
]
