"""Residual networks: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016."""

from __future__ import annotations

from torch import nn

from leakscope.models.blocks import BasicBlock, Bottleneck, ResNet, Trunk, padded_shortcut
from leakscope.models.plan import NetworkPlan

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


def resnet34(plan: NetworkPlan) -> nn.Module:
    """ResNet-34: 21,282,122 parameters for 10 classes at 32×32, 21,797,672 for 1000 at 224×224."""
    return _imagenet(plan, (3, 4, 6, 3), BasicBlock)


def resnet50(plan: NetworkPlan) -> nn.Module:
    """ResNet-50: 23,520,842 parameters for 10 classes at 32×32, 25,557,032 for 1000 at 224×224."""
    return _imagenet(plan, (3, 4, 6, 3), Bottleneck)


def _imagenet(plan: NetworkPlan, depths: tuple[int, ...], block: type[BasicBlock] | type[Bottleneck]) -> nn.Module:
    large = max(plan.height, plan.width) > LARGEST_SMALL_IMAGE
    return ResNet(plan, Trunk(_IMAGENET_WIDTHS, depths, block=block, large_stem=large))
