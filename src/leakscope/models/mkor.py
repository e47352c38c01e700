"""The two "modified" networks of the MKOR paper: nothing in them loses a pixel, so that they can be read exactly.

Wang, Velipasalar, Gursoy, "Maximum Knowledge Orthogonality Reconstruction with Gradients in Federated Learning",
WACV 2024.
"""

from __future__ import annotations

from torch import nn

from leakscope.models.plan import NetworkPlan, chain


def mkor_strided(plan: NetworkPlan) -> nn.Sequential:
    """Two 5×5 convolutions of stride 2 with room for the four directions of each, then one linear layer.

    The paper describes it; its released code has it switched off and uses `mkor_copy`.
    """
    layers: list[tuple[str, nn.Module]] = []
    channels, height, width = plan.in_channels, plan.height, plan.width
    for number in (1, 2):
        layers += [
            (f"conv{number}", nn.Conv2d(channels, 4 * channels, 5, stride=2, padding=2)),
            (f"act{number}", plan.activation()),
        ]
        channels, height, width = 4 * channels, -(-height // 2), -(-width // 2)
    return _classify(plan, layers, channels * height * width)


def mkor_copy(plan: NetworkPlan) -> nn.Sequential:
    """Two 5×5 convolutions of stride 1 with as many channels as the picture, then one linear layer, as released."""
    channels = plan.in_channels
    layers: list[tuple[str, nn.Module]] = []
    for number in (1, 2):
        layers += [
            (f"conv{number}", nn.Conv2d(channels, channels, 5, padding=2)),
            (f"act{number}", plan.activation()),
        ]
    return _classify(plan, layers, channels * plan.height * plan.width)


def _classify(plan: NetworkPlan, layers: list[tuple[str, nn.Module]], width: int) -> nn.Sequential:
    return chain(plan, [*layers, ("flatten", nn.Flatten()), ("fc", nn.Linear(width, plan.num_classes))])
