"""Plain networks, one layer after the other: a perceptron, the ConvNet of the inversion studies, VGG-16."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from leakscope.models.plan import NetworkPlan, chain

_CONVNET_BEFORE_POOL = (64, 128, 128, 256, 256, 256)
# Channels of each convolution; 0 is a pooling that halves the side.
_VGG_LAYOUT = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)


def mlp(plan: NetworkPlan) -> nn.Sequential:
    """A plain perceptron, whose first layer gives its input away exactly.

    One linear layer and activation per width in `plan.hidden`, then the classifier.
    """
    layers: list[tuple[str, nn.Module]] = [("flatten", nn.Flatten())]
    width = plan.in_channels * plan.height * plan.width
    for number, hidden in enumerate(plan.hidden, start=1):
        layers += [(f"fc{number}", nn.Linear(width, hidden)), (f"act{number}", plan.activation())]
        width = hidden
    layers.append((f"fc{len(plan.hidden) + 1}", nn.Linear(width, plan.num_classes)))
    return chain(plan, layers)


def convnet(plan: NetworkPlan) -> nn.Sequential:
    """Eight convolutions of width 64 and more with batch normalisation: 3,112,420 parameters for 100 classes at 32×32.

    Geiping et al., "Inverting Gradients", NeurIPS 2020. Their source lists one of three blocks
    behind the first pooling twice under the same key, so the network they ran has two.
    """
    return _convnet(plan, after_pool=2)


def convnet_9(plan: NetworkPlan) -> nn.Sequential:
    """Nine convolutions, as a replication typed it, all three blocks: 3,703,012 parameters for 100 classes at 32×32."""
    return _convnet(plan, after_pool=3)


def _convnet(plan: NetworkPlan, *, after_pool: int) -> nn.Sequential:
    layers: list[tuple[str, nn.Module]] = []
    channels = plan.in_channels
    for number, width in enumerate(_CONVNET_BEFORE_POOL + (256,) * after_pool, start=1):
        if number == len(_CONVNET_BEFORE_POOL) + 1:
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


def vgg16(plan: NetworkPlan) -> nn.Sequential:
    """Thirteen 3×3 convolutions in five groups, then 4096, 4096 and the classes.

    138,357,544 parameters for 1000 classes at 224×224.
    Simonyan, Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR
    2015; without batch normalisation and without dropout, as the MKOR paper attacks it.
    """
    features = nn.Sequential()
    channels, height, width = plan.in_channels, plan.height, plan.width
    for filters in _VGG_LAYOUT:
        if filters:
            features.extend([nn.Conv2d(channels, filters, 3, padding=1), plan.activation()])
            channels = filters
        else:
            features.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    return chain(
        plan,
        [
            ("features", features),
            ("flatten", nn.Flatten()),
            ("classifier", _vgg_classifier(plan, channels * height * width)),
        ],
    )


def _vgg_classifier(plan: NetworkPlan, width: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            fc1=nn.Linear(width, 4096),
            act1=plan.activation(),
            fc2=nn.Linear(4096, 4096),
            act2=plan.activation(),
            fc3=nn.Linear(4096, plan.num_classes),
        )
    )
