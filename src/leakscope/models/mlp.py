"""A plain multi-layer perceptron: the network whose first layer gives its input away exactly."""

from __future__ import annotations

from torch import nn

from leakscope.models.plan import NetworkPlan, chain


def mlp(plan: NetworkPlan) -> nn.Sequential:
    """Flatten, then one linear layer and activation per width in `plan.hidden`, then the classifier."""
    layers: list[tuple[str, nn.Module]] = [("flatten", nn.Flatten())]
    width = plan.in_channels * plan.height * plan.width
    for number, hidden in enumerate(plan.hidden, start=1):
        layers += [(f"fc{number}", nn.Linear(width, hidden)), (f"act{number}", plan.activation())]
        width = hidden
    layers.append((f"fc{len(plan.hidden) + 1}", nn.Linear(width, plan.num_classes)))
    return chain(plan, layers)
