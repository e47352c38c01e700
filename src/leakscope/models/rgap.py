"""The two networks R-GAP was shown on: bias-free, LeakyReLU of slope 0.2, one logit in the paper.

Zhu, Blaschko, "R-GAP: Recursive Gradient Attack on Privacy", ICLR 2021.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from leakscope.models.plan import NetworkPlan, chain

# Filters, kernel, stride and padding of CNN6's convolutions.
_CNN6 = ((12, 4, 2, 2), (36, 3, 2, 1), (36, 3, 1, 1), (36, 3, 1, 1), (64, 3, 2, 1), (128, 3, 1, 1))


def fcn3(plan: NetworkPlan) -> nn.Sequential:
    """Linear layers without bias, by default three: 1,000 and 100 neurons and the output."""
    layers: list[tuple[str, nn.Module]] = [("flatten", nn.Flatten())]
    width = plan.in_channels * plan.height * plan.width
    for number, hidden in enumerate(plan.hidden, start=1):
        layers += [(f"fc{number}", nn.Linear(width, hidden, bias=False)), (f"act{number}", plan.activation())]
        width = hidden
    return chain(plan, [*layers, (f"fc{len(plan.hidden) + 1}", nn.Linear(width, plan.num_classes, bias=False))])


def cnn6(plan: NetworkPlan) -> nn.Sequential:
    """Six convolutions without bias and a linear layer, which sees 3,200 values for 32×32 images."""
    layers: list[tuple[str, nn.Module]] = []
    channels, sides = plan.in_channels, [plan.height, plan.width]
    for number, (filters, kernel, stride, padding) in enumerate(_CNN6, start=1):
        conv = nn.Conv2d(channels, filters, kernel, stride=stride, padding=padding, bias=False)
        layers += [(f"conv{number}", conv), (f"act{number}", plan.activation())]
        channels, sides = filters, [(side + 2 * padding - kernel) // stride + 1 for side in sides]
    head = nn.Linear(channels * sides[0] * sides[1], plan.num_classes, bias=False)
    return chain(plan, [*layers, ("flatten", nn.Flatten()), ("fc", head)])


def logistic_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean logistic loss of a single logit [n, 1] for labels 0 and 1, whole numbers or not, [n] or [n, 1]."""
    return functional.binary_cross_entropy_with_logits(logits.reshape(-1), targets.reshape(-1).to(logits.dtype))
