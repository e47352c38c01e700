"""The federation round the client: rounds of training, averaging updates, and what a defence costs in accuracy."""

from __future__ import annotations

from leakscope.federated.aggregation import fedavg
from leakscope.federated.aggregator import Aggregator, PlainAggregator
from leakscope.federated.client import Client, Reply
from leakscope.federated.experiment import Experiment, ServerOptimiser
from leakscope.federated.fedboosting import FedBoosting
from leakscope.federated.federation import Training, train_federated
from leakscope.federated.play import RoundRecord
from leakscope.federated.poison import Poison
from leakscope.federated.server import Server
from leakscope.federated.strategy import FedAvg, Strategy
from leakscope.federated.training import measure_utility
from leakscope.federated.trials import Trained, train_with
from leakscope.federated.utility import StepRatio, Utility, seeds_interval, wilson_interval

__all__ = [
    "Aggregator",
    "Client",
    "Experiment",
    "FedAvg",
    "FedBoosting",
    "PlainAggregator",
    "Poison",
    "Reply",
    "RoundRecord",
    "Server",
    "ServerOptimiser",
    "StepRatio",
    "Strategy",
    "Trained",
    "Training",
    "Utility",
    "fedavg",
    "measure_utility",
    "seeds_interval",
    "train_federated",
    "train_with",
    "wilson_interval",
]
