"""How well a network answers examples it was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from leakscope.federated.memory import ClientMemory
from leakscope.networks import copy_network
from leakscope.tasks import OutputLoss, Task
from leakscope.types import Batch, Loss

EVALUATION_CHUNK = 512


@torch.no_grad()
def evaluate(
    model: nn.Module, test: Batch, *, loss: Loss | None, task: Task, memories: Sequence[ClientMemory]
) -> tuple[float, float]:
    """Return the share of right answers and the mean loss in eval mode, each the mean over the clients' networks.

    What clients keep for themselves enters a copy: `model` may be the server's, which must not get to know it. `loss`
    takes scores; None is the task's own.
    """
    model.eval()
    network = copy_network(model) if any(memory.private for memory in memories) else model
    hits, total = 0, 0.0
    for memory in memories:
        memory.enter(network)
        parts = zip(test.inputs.split(EVALUATION_CHUNK), test.targets.split(EVALUATION_CHUNK), strict=True)
        for inputs, targets in parts:
            output = network(inputs)
            hits += task.count_correct(output, targets)
            total += float(_mean_loss(output, targets, loss=loss, task=task)) * len(inputs)
    return hits / (len(memories) * len(test)), total / (len(memories) * len(test))


def _mean_loss(output: Any, targets: Tensor, *, loss: Loss | None, task: Task) -> Tensor:
    if loss is None:
        return task.loss(output, targets)
    return loss(output if isinstance(loss, OutputLoss) else task.check_output(output), targets)
