"""The attacked networks as plain torch code, so that both sides can build them without each other.

Inputs arrive already normalised, as breaching expects. Batch norm is used in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

CIFAR10_MEAN = (0.49147, 0.48226, 0.44677)
CIFAR10_STD = (0.24703, 0.24349, 0.26159)


def build(architecture: str, *, num_classes: int = 10, seed: int = 0) -> nn.Module:
    """Return an untrained network in evaluation mode; the weights depend on `seed` alone."""
    if architecture not in ARCHITECTURES:
        raise SystemExit(f"unknown architecture {architecture!r}; expected one of {', '.join(ARCHITECTURES)}")
    # The constructors of torch.nn draw from the global generator only: lend it, then give it back.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ARCHITECTURES[architecture](num_classes).eval()


def normalisation(architecture: str, *, normalised: bool | None = None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of the pixels.

    `normalised` says whether there are any; None is what the papers did: DLG's LeNet sees plain [0, 1] images.
    """
    if normalised is None:
        normalised = architecture != "lenet-dlg"
    return (CIFAR10_MEAN, CIFAR10_STD) if normalised else ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def convnet(num_classes: int) -> nn.Module:
    """ConvNet-8 of width 64 (Geiping et al. 2020): 3,112,420 parameters with 100 classes."""
    widths = (64, 128, 128, 256, 256, 256)
    layers: list[nn.Module] = []
    for before, after in zip((3, *widths), widths, strict=False):
        layers += _conv_block(before, after)
    layers += [nn.MaxPool2d(3), *_conv_block(256, 256), *_conv_block(256, 256), nn.MaxPool2d(3), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(256 * 9, num_classes))


def _conv_block(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        """Take `before` channels and give `after`."""
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(block(x) + shortcut(x))."""
        inner = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(inner)) + self.shortcut(x))


def resnet20_4(num_classes: int) -> nn.Module:
    """ResNet-20, four times wider: 4,350,884 parameters in 65 tensors with 100 classes."""
    return _resnet((64, 128, 256), depth=3, num_classes=num_classes)


def resnet18(num_classes: int) -> nn.Module:
    """ResNet-18 with the 3×3 stem for small images: 11,173,962 parameters in 62 tensors with 10 classes."""
    return _resnet((64, 128, 256, 512), depth=2, num_classes=num_classes)


def _resnet(widths: tuple[int, ...], *, depth: int, num_classes: int) -> nn.Module:
    """A stem and one stage per width, each of `depth` blocks; every stage but the first halves the side."""
    before = widths[0]
    layers: list[nn.Module] = [nn.Conv2d(3, before, 3, padding=1, bias=False), nn.BatchNorm2d(before), nn.ReLU()]
    for stage, width in enumerate(widths):
        for block in range(depth):
            layers.append(BasicBlock(before, width, 2 if stage > 0 and block == 0 else 1))
            before = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, num_classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def lenet_dlg(num_classes: int) -> nn.Module:
    """LeNet of Zhu et al. 2019: smooth, and with weights wide enough that L-BFGS converges."""
    model = nn.Sequential(
        *(nn.Conv2d(3, 12, 5, stride=2, padding=2), nn.Sigmoid()),
        *(nn.Conv2d(12, 12, 5, stride=2, padding=2), nn.Sigmoid()),
        *(nn.Conv2d(12, 12, 5, padding=2), nn.Sigmoid()),
        *(nn.Flatten(), nn.Linear(768, num_classes)),
    )
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return model


ARCHITECTURES: dict[str, Callable[[int], nn.Module]] = {
    "convnet": convnet,
    "resnet20-4": resnet20_4,
    "resnet18": resnet18,
    "lenet-dlg": lenet_dlg,
}
