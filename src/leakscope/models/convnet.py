"""The ConvNet of the gradient-inversion studies, width 64, with batch normalisation.

Geiping et al., "Inverting Gradients", NeurIPS 2020. Their source lists one of three blocks
behind the first pooling twice under the same key, so the network they ran has two: 8
convolutions. A replication typed all three: 9 convolutions.
"""

from __future__ import annotations

from torch import nn

from leakscope.models.plan import NetworkPlan, chain

_BEFORE_POOL = (64, 128, 128, 256, 256, 256)


def convnet(plan: NetworkPlan) -> nn.Sequential:
    """Eight convolutions: 3,112,420 parameters for 100 classes at 32×32."""
    return _convnet(plan, after_pool=2)


def convnet_9(plan: NetworkPlan) -> nn.Sequential:
    """Nine convolutions: 3,703,012 parameters for 100 classes at 32×32."""
    return _convnet(plan, after_pool=3)


def _convnet(plan: NetworkPlan, *, after_pool: int) -> nn.Sequential:
    layers: list[tuple[str, nn.Module]] = []
    channels = plan.in_channels
    for number, width in enumerate(_BEFORE_POOL + (256,) * after_pool, start=1):
        if number == len(_BEFORE_POOL) + 1:
            layers.append(("pool1", nn.MaxPool2d(3)))
        layers += [
            (f"conv{number}", nn.Conv2d(channels, width, 3, padding=1)),
            (f"bn{number}", nn.BatchNorm2d(width)),
            (f"act{number}", plan.activation()),
        ]
        channels = width
    positions = (plan.height // 3 // 3) * (plan.width // 3 // 3)
    tail: list[tuple[str, nn.Module]] = [
        ("pool2", nn.MaxPool2d(3)),
        ("flatten", nn.Flatten()),
        ("fc", nn.Linear(channels * positions, plan.num_classes)),
    ]
    return chain(plan, layers + tail)
