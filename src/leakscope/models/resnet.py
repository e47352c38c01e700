"""Residual networks: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.

Every operation can be traced by `torch.fx`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from leakscope.models.plan import Activation, NetworkPlan

Shortcut = Callable[[int, int, int], nn.Module]
MakeBlock = Callable[[int, int, int], "BasicBlock | Bottleneck"]


class PaddedShortcut(nn.Module):
    """Option A of He et al.: take every `stride`-th pixel and pad the new channels with zeros.

    Half of the new channels come before the old ones and half after, as in trained CIFAR weights.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        """Pad `channels` to `width`."""
        super().__init__()
        self.stride = stride
        self.before = (width - channels) // 2
        self.after = width - channels - self.before

    def forward(self, inputs: Tensor) -> Tensor:
        """Subsample and pad without any parameter."""
        kept = inputs[:, :, :: self.stride, :: self.stride]
        return functional.pad(kept, (0, 0, 0, 0, self.before, self.after))


def padded_shortcut(channels: int, width: int, stride: int) -> nn.Module:
    """Identity where the shape stays, else option A."""
    return nn.Identity() if stride == 1 and channels == width else PaddedShortcut(channels, width, stride)


def projected_shortcut(channels: int, width: int, stride: int) -> nn.Module:
    """Identity where the shape stays, else a 1×1 convolution with batch normalisation (option B)."""
    if stride == 1 and channels == width:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions: y = φ(bn(conv(φ(bn(conv(x))))) + shortcut(x))."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int, *, activation: Activation, shortcut: Shortcut) -> None:
        """Build a block from `channels` to `width`."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = activation()
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = shortcut(channels, width, stride)
        self.act2 = activation()

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the block."""
        inner = self.act1(self.bn1(self.conv1(inputs)))
        return self.act2(self.bn2(self.conv2(inner)) + self.shortcut(inputs))


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions with four times `width` channels at the end; the 3×3 one strides."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int, *, activation: Activation, shortcut: Shortcut) -> None:
        """Build a block from `channels` to 4·`width`."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = activation()
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.act2 = activation()
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.shortcut = shortcut(channels, 4 * width, stride)
        self.act3 = activation()

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the block."""
        inner = self.act1(self.bn1(self.conv1(inputs)))
        inner = self.act2(self.bn2(self.conv2(inner)))
        return self.act3(self.bn3(self.conv3(inner)) + self.shortcut(inputs))


@dataclass(frozen=True)
class Trunk:
    """The shape of a residual network: one width and one depth per stage."""

    widths: Sequence[int]
    depths: Sequence[int]
    block: type[BasicBlock] | type[Bottleneck] = BasicBlock
    shortcut: Shortcut = projected_shortcut
    large_stem: bool = False


class ResNet(nn.Module):
    """Normalise, stem, stages of blocks, global average, linear layer `fc`."""

    def __init__(self, plan: NetworkPlan, trunk: Trunk) -> None:
        """Build the network; every stage but the first halves the side."""
        super().__init__()
        width = trunk.widths[0]
        kernel, stride = (7, 2) if trunk.large_stem else (3, 1)
        self.normalise = plan.normalise()
        self.conv1 = nn.Conv2d(plan.in_channels, width, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = plan.activation()
        self.pool1 = nn.MaxPool2d(3, stride=2, padding=1) if trunk.large_stem else nn.Identity()
        make = partial(trunk.block, activation=plan.activation, shortcut=trunk.shortcut)
        stages, channels = [], width
        for stage, (width, depth) in enumerate(zip(trunk.widths, trunk.depths, strict=True)):
            stages.append(_stage(make, channels, width=width, depth=depth, stride=1 if stage == 0 else 2))
            channels = width * trunk.block.expansion
        self.stages = len(stages)
        for number, layers in enumerate(stages, start=1):
            self.add_module(f"layer{number}", layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(channels, plan.num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits [n, classes] of images in [0, 1]."""
        hidden = self.pool1(self.act1(self.bn1(self.conv1(self.normalise(inputs)))))
        for number in range(1, self.stages + 1):
            hidden = self.get_submodule(f"layer{number}")(hidden)
        return self.fc(self.flatten(self.avgpool(hidden)))


def _stage(make: MakeBlock, channels: int, *, width: int, depth: int, stride: int) -> nn.Sequential:
    first = make(channels, width, stride)
    rest = [make(width * first.expansion, width, 1) for _ in range(depth - 1)]
    return nn.Sequential(first, *rest)


_CIFAR_WIDTHS = (16, 32, 64)
_WIDE_CIFAR_WIDTHS = (64, 128, 256)
_IMAGENET_WIDTHS = (64, 128, 256, 512)

# Larger images get the 7×7 stem and the pooling of the ImageNet networks.
LARGEST_SMALL_IMAGE = 64


def resnet20(plan: NetworkPlan) -> nn.Module:
    """CIFAR ResNet-20 with parameter-free shortcuts: 269,722 parameters for 10 classes."""
    return ResNet(plan, Trunk(_CIFAR_WIDTHS, (3, 3, 3), shortcut=padded_shortcut))


def resnet32(plan: NetworkPlan) -> nn.Module:
    """CIFAR ResNet-32 with parameter-free shortcuts: 464,154 parameters for 10 classes."""
    return ResNet(plan, Trunk(_CIFAR_WIDTHS, (5, 5, 5), shortcut=padded_shortcut))


def resnet20_4(plan: NetworkPlan) -> nn.Module:
    """ResNet-20, four times as wide, with projected shortcuts: 4,350,884 parameters for 100 classes.

    The victim of Gao et al., "Privacy-preserving Collaborative Learning with Automatic
    Transformation Search", CVPR 2021.
    """
    return ResNet(plan, Trunk(_WIDE_CIFAR_WIDTHS, (3, 3, 3)))


def resnet18(plan: NetworkPlan) -> nn.Module:
    """ResNet-18: 11,173,962 parameters for 10 classes at 32×32, 11,689,512 for 1000 at 224×224."""
    return _imagenet(plan, (2, 2, 2, 2), BasicBlock)


def resnet18_grnn(plan: NetworkPlan) -> nn.Module:
    """ResNet-18 attacked by GRNN: the stem for small images, 3×3 without pooling, whatever the size.

    Ren, Deng, Xie, "GRNN: Generative Regression Neural Network", ACM TIST 2022.
    """
    return ResNet(plan, Trunk(_IMAGENET_WIDTHS, (2, 2, 2, 2)))


def resnet34(plan: NetworkPlan) -> nn.Module:
    """ResNet-34: 21,282,122 parameters for 10 classes at 32×32, 21,797,672 for 1000 at 224×224."""
    return _imagenet(plan, (3, 4, 6, 3), BasicBlock)


def resnet50(plan: NetworkPlan) -> nn.Module:
    """ResNet-50: 23,520,842 parameters for 10 classes at 32×32, 25,557,032 for 1000 at 224×224."""
    return _imagenet(plan, (3, 4, 6, 3), Bottleneck)


def _imagenet(plan: NetworkPlan, depths: tuple[int, ...], block: type[BasicBlock] | type[Bottleneck]) -> nn.Module:
    large = max(plan.height, plan.width) > LARGEST_SMALL_IMAGE
    return ResNet(plan, Trunk(_IMAGENET_WIDTHS, depths, block=block, large_stem=large))
