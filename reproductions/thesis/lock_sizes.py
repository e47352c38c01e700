"""How many of a network's parameters are those of its lock."""

from __future__ import annotations

import torch

from leakscope.client import harden
from leakscope.defences.locks import Lock
from leakscope.registry import defence_from_spec
from leakscope.reproduction import CallValues
from leakscope.reproduction.networks import build_network
from leakscope.types import Batch


def measure_lock(*, model: dict[str, object], data: str, shape: list[int], defence: str) -> CallValues:
    """`proportion`: parameters of the lock's layers over all parameters of the locked network."""
    example = Batch(torch.zeros(1, *shape), torch.zeros(1, dtype=torch.int64))
    network = harden(build_network(model, data, example), defence_from_spec(defence), seed=0).client
    locks = [module for module in network.modules() if isinstance(module, Lock)]
    own = sum(value.numel() for lock in locks for value in lock.parameters())
    return CallValues({"proportion": own / sum(value.numel() for value in network.parameters()), "lock": own})
