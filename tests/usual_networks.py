"""Small networks of the kinds people train: every one must get a result or one typed refusal."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

CLASSES = 4


class SpareLayer(nn.Module):
    """A layer that the forward pass never reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head, self.spare = nn.Conv2d(3, 6, 3, padding=1), nn.Linear(384, CLASSES), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x)).flatten(1))


class Gated(nn.Module):
    """A parameter that is used through a function only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 6, 3, padding=1), nn.Linear(384, CLASSES)
        self.gate = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x) * torch.sigmoid(self.gate)).flatten(1))


class HeadTwice(SpareLayer):
    """A weight that is used by its layer, and through a function as well."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.conv.weight.square().mean()


class FixedPart(SpareLayer):
    """A first layer that runs without derivatives."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            features = torch.relu(self.conv(x))
        return self.head(features.flatten(1))


class TiedLayers(nn.Module):
    """One weight in two layers, and one layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(192, 16), nn.Linear(16, CLASSES)
        self.middle, self.other = nn.Linear(16, 16), nn.Linear(16, 16)
        self.other.weight = self.middle.weight
        self.again = self.middle

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        return self.head(torch.tanh(self.again(torch.tanh(self.other(torch.tanh(self.middle(x)))))))


class ResidualBlock(nn.Module):
    """Torchvision's basic block: in-place ReLU, in-place sum, a projection on the short cut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.one = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8))
        self.two = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8))
        self.down = nn.Sequential(nn.Conv2d(8, 8, 1, 2, bias=False), nn.BatchNorm2d(8))
        self.relu, self.pool, self.fc = nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.stem(x))
        y = self.two(self.relu(self.one(x)))
        y += self.down(x)
        return self.fc(torch.flatten(self.pool(self.relu(y)), 1))


class InvertedResidual(nn.Module):
    """MobileNet's block: ReLU6, depthwise convolution, dropout before the head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.block = nn.Sequential(
            nn.Conv2d(8, 16, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU6(inplace=True),
            nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU6(inplace=True),
            nn.Conv2d(16, 8, 1, bias=False),
        )
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head((x + self.block(x)).mean([2, 3]))


class SkipNetwork(nn.Module):
    """A U-Net of one level that classifies."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 12, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(12, 6, 2, 2), nn.Conv2d(12, 6, 3, padding=1)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        left = functional.relu(self.down(x))
        right = self.up(functional.relu(self.deep(functional.max_pool2d(left, 2))))
        return self.head(functional.relu(self.out(torch.cat([right, left], 1))).mean((2, 3)))


class Recurrent(nn.Module):
    """Rows of a picture one after the other."""

    def __init__(self, rows: nn.RNNBase) -> None:
        super().__init__()
        self.rows, self.head = rows, nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rows(x.permute(0, 2, 1, 3).flatten(2))[0][:, -1])


class Encoder(nn.Module):
    """A transformer over rows with a class token and learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(24, 16), nn.Linear(16, CLASSES)
        self.position, self.token = nn.Parameter(torch.randn(1, 9, 16) * 0.02), nn.Parameter(torch.zeros(1, 1, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x.permute(0, 2, 1, 3).flatten(2))
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.encoder(x)[:, 0])


class ScaledBranch(nn.Module):
    """ConvNeXt's block: layer normalisation, GELU, a learned scale on the branch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.point = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8), nn.Linear(8, 8)
        self.scale, self.head = nn.Parameter(torch.full((8,), 0.1)), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).permute(0, 2, 3, 1)
        return self.head((x + self.scale * self.point(functional.gelu(self.norm(x)))).mean((1, 2)))


def _plain(*middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), *middle, nn.Flatten(), nn.Linear(384, CLASSES))


def _partly_frozen() -> nn.Module:
    model = _plain(nn.ReLU())
    model[0].weight.requires_grad_(False)
    return model


USUAL: dict[str, Callable[[], nn.Module]] = {
    "spare layer": SpareLayer,
    "gate": Gated,
    "head twice": HeadTwice,
    "fixed part": FixedPart,
    "tied": TiedLayers,
    "frozen": _partly_frozen,
    "residual": lambda: ResidualBlock().eval(),
    "residual in training": ResidualBlock,
    "mobile": lambda: InvertedResidual().eval(),
    "skip": SkipNetwork,
    "gru": lambda: Recurrent(nn.GRU(24, 12, batch_first=True)),
    "lstm": lambda: Recurrent(nn.LSTM(24, 12, batch_first=True)),
    "transformer": Encoder,
    "scaled branch": ScaledBranch,
    "silu": lambda: _plain(nn.SiLU(), nn.Identity()),
    "gelu": lambda: _plain(nn.GELU()),
    "leaky": lambda: _plain(nn.LeakyReLU(0.1, inplace=True)),
    "prelu": lambda: _plain(nn.PReLU()),
    "group norm": lambda: _plain(nn.GroupNorm(2, 6), nn.ReLU(inplace=True)),
    "dropout of zero": lambda: _plain(nn.ReLU(), nn.Dropout(0.0)),
    "weight norm": lambda: nn.Sequential(weight_norm(nn.Conv2d(3, 6, 3)), nn.ReLU(), nn.Flatten(), nn.Linear(216, 4)),
    "half": lambda: _plain(nn.ReLU()).half(),
}


def usual(name: str) -> nn.Module:
    """A network of this kind, the same every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return USUAL[name]()
