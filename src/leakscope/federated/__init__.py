"""The federation round the client: averaging updates, and what a defence costs in accuracy."""

from __future__ import annotations

from leakscope.federated.aggregation import fedavg
from leakscope.federated.training import measure_utility
from leakscope.federated.utility import StepRatio, Utility, wilson_interval

__all__ = ["StepRatio", "Utility", "fedavg", "measure_utility", "wilson_interval"]
