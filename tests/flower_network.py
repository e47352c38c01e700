"""A small network, the examples of clients and their training, where a process of its own can import them."""

from __future__ import annotations

import torch
from torch import nn

from leakscope.types import Batch, LocalTraining
from tiny import batch_of, dense

LOCAL = LocalTraining(lr=0.1, epochs=1, batch_size=1)


def network() -> nn.Module:
    """The network of all clients."""
    return dense(dtype=torch.float32)


def examples(client: int) -> Batch:
    """One example for each client."""
    return batch_of([client % 4], seed=client, dtype=torch.float32)


def slow_network() -> nn.Module:
    """A network that takes longer to build than any test waits."""
    import time

    time.sleep(60)
    return network()


def pair(client: int) -> Batch:
    """Two examples, where an update is of one."""
    return batch_of([0, 1], seed=client, dtype=torch.float32)
