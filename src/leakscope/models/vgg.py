"""VGG-16 without batch normalisation and without dropout, as the MKOR paper attacks it.

Simonyan, Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR
2015. 138,357,544 parameters for 1000 classes at 224×224.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from leakscope.models.plan import NetworkPlan, chain

# Channels of each convolution; 0 is a pooling that halves the side.
_LAYOUT = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)


def vgg16(plan: NetworkPlan) -> nn.Sequential:
    """Thirteen 3×3 convolutions in five groups, then 4096, 4096 and the classes."""
    features = nn.Sequential()
    channels, height, width = plan.in_channels, plan.height, plan.width
    for filters in _LAYOUT:
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
            ("classifier", _classifier(plan, channels * height * width)),
        ],
    )


def _classifier(plan: NetworkPlan, width: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            fc1=nn.Linear(width, 4096),
            act1=plan.activation(),
            fc2=nn.Linear(4096, 4096),
            act2=plan.activation(),
            fc3=nn.Linear(4096, plan.num_classes),
        )
    )
