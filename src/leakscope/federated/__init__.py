"""The federation round the client: averaging updates, sealed ones too, and what a defence costs in accuracy."""

from __future__ import annotations

from leakscope.federated.aggregation import fedavg
from leakscope.federated.training import measure_utility
from leakscope.federated.trials import Trained, train_with
from leakscope.federated.utility import StepRatio, Utility, seeds_interval, wilson_interval
from leakscope.sealed import (
    client_secret,
    combine,
    error_bound,
    keygen,
    load_keys,
    load_public,
    open_sealed,
    save_keys,
    seal,
)

__all__ = [
    "StepRatio",
    "Trained",
    "Utility",
    "client_secret",
    "combine",
    "error_bound",
    "fedavg",
    "keygen",
    "load_keys",
    "load_public",
    "measure_utility",
    "open_sealed",
    "save_keys",
    "seal",
    "seeds_interval",
    "train_with",
    "wilson_interval",
]
