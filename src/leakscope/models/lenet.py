"""Four LeNets from the attack papers; they differ in padding, pooling and stride.

The papers use sigmoids because gradient matching differentiates twice, where ReLU gives zero.
"""

from __future__ import annotations

from torch import nn

from leakscope.models.plan import NetworkPlan, chain


def lenet_dlg(plan: NetworkPlan) -> nn.Sequential:
    """LeNet of Deep Leakage from Gradients: three convolutions of 12 channels, strides 2, 2, 1, no pooling.

    Zhu, Liu, Han, "Deep Leakage from Gradients", NeurIPS 2019. The last layer sees 768 values
    for 32×32 images and 588 for 28×28.
    """
    layers: list[tuple[str, nn.Module]] = []
    channels, height, width = plan.in_channels, plan.height, plan.width
    for number, stride in enumerate((2, 2, 1), start=1):
        layers += [
            (f"conv{number}", nn.Conv2d(channels, 12, 5, stride=stride, padding=2)),
            (f"act{number}", plan.activation()),
        ]
        channels, height, width = 12, -(-height // stride), -(-width // stride)
    return chain(plan, [*layers, ("flatten", nn.Flatten()), ("fc", nn.Linear(12 * height * width, plan.num_classes))])


def lenet_grnn(plan: NetworkPlan) -> nn.Sequential:
    """LeNet attacked by GRNN: two unpadded convolutions with max pooling, then 120 and 84 neurons.

    Ren, Deng, Xie, "GRNN: Generative Regression Neural Network", ACM TIST 2022.
    """
    return chain(plan, _two_convs(plan, padding=0, pool=nn.MaxPool2d))


def lenet5(plan: NetworkPlan) -> nn.Sequential:
    """LeNet-5 attacked by MKOR: padding 2 in the first convolution, average pooling.

    Wang, Velipasalar, Gursoy, "Maximum Knowledge Orthogonality Reconstruction with Gradients in Federated Learning",
    WACV 2024.
    """
    return chain(plan, _two_convs(plan, padding=2, pool=nn.AvgPool2d))


def lenet5_strided(plan: NetworkPlan) -> nn.Sequential:
    """LeNet-5 whose convolutions have stride 2 in the place of the poolings: the "modified LeNet" of the MKOR paper."""
    rows, columns = ((-(-side // 2) - 5) // 2 + 1 for side in (plan.height, plan.width))
    return chain(
        plan,
        [
            ("conv1", nn.Conv2d(plan.in_channels, 6, 5, stride=2, padding=2)),
            ("act1", plan.activation()),
            ("conv2", nn.Conv2d(6, 16, 5, stride=2)),
            ("act2", plan.activation()),
            ("flatten", nn.Flatten()),
            *_dense(plan, 16 * rows * columns),
        ],
    )


def _two_convs(
    plan: NetworkPlan, *, padding: int, pool: type[nn.MaxPool2d] | type[nn.AvgPool2d]
) -> list[tuple[str, nn.Module]]:
    # Each 5×5 convolution takes 4 off a side, less what its padding adds, and each pooling halves the rest.
    rows, columns = (((side + 2 * padding - 4) // 2 - 4) // 2 for side in (plan.height, plan.width))
    return [
        ("conv1", nn.Conv2d(plan.in_channels, 6, 5, padding=padding)),
        ("act1", plan.activation()),
        ("pool1", pool(2)),
        ("conv2", nn.Conv2d(6, 16, 5)),
        ("act2", plan.activation()),
        ("pool2", pool(2)),
        ("flatten", nn.Flatten()),
        *_dense(plan, 16 * rows * columns),
    ]


def _dense(plan: NetworkPlan, width: int) -> list[tuple[str, nn.Module]]:
    return [
        ("fc1", nn.Linear(width, 120)),
        ("act3", plan.activation()),
        ("fc2", nn.Linear(120, 84)),
        ("act4", plan.activation()),
        ("fc3", nn.Linear(84, plan.num_classes)),
    ]
