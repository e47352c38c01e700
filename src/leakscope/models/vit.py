"""A small vision transformer: patches, learned positions, a class token, pre-norm blocks.

Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021, at a size for 8 to 64 pixels a side.
Attention is written out: the fused kernels of PyTorch have no second derivative, which
gradient matching needs.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn import init

from leakscope.models.initialise import default
from leakscope.models.plan import NetworkPlan, chain

WIDTH, DEPTH, HEADS = 64, 3, 4


def vit(plan: NetworkPlan) -> nn.Sequential:
    """Three blocks of width 64 with four heads: 108,554 parameters for 10 classes at 3×32×32."""
    patch = _patch_side(max(plan.height, plan.width))
    rows, columns = math.ceil(plan.height / patch), math.ceil(plan.width / patch)
    below, right = rows * patch - plan.height, columns * patch - plan.width
    layers: list[tuple[str, nn.Module]] = [
        *([("pad", nn.ZeroPad2d((0, right, 0, below)))] if below or right else []),
        ("patches", nn.Conv2d(plan.in_channels, WIDTH, patch, stride=patch)),
        ("tokens", Tokens(rows * columns, WIDTH)),
        *((f"block{number}", TransformerBlock(plan)) for number in range(1, DEPTH + 1)),
        ("norm", nn.LayerNorm(WIDTH)),
        ("first", FirstToken()),
        ("fc", nn.Linear(WIDTH, plan.num_classes)),
    ]
    return chain(plan, layers)


def _patch_side(longest: int) -> int:
    """Four pixels at 32, sixteen at 224 as published: attention costs the number of patches squared."""
    return next((side for limit, side in ((16, 2), (48, 4), (128, 8)) if longest <= limit), 16)


class Tokens(nn.Module):
    """Feature maps [n, width, rows, columns] → tokens [n, 1 + rows · columns, width]."""

    def __init__(self, count: int, width: int) -> None:
        """Hold one learned vector for the class and one for every position."""
        super().__init__()
        self.first = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, 1 + count, width))

    def forward(self, maps: Tensor) -> Tensor:
        """Put the class token first and add the positions."""
        tokens = maps.flatten(2).transpose(1, 2)
        return torch.cat([self.first.expand(maps.shape[0], -1, -1), tokens], dim=1) + self.positions


class Attention(nn.Module):
    """softmax(QKᵀ/√d) V in each of the heads."""

    def __init__(self) -> None:
        """Hold one projection in and one out."""
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        """Mix tokens [n, t, width]."""
        query, key, value = self.qkv(tokens).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (query @ key.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)).softmax(-1)
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class TransformerBlock(nn.Module):
    """x + attention(norm(x)), then x + perceptron(norm(x))."""

    def __init__(self, plan: NetworkPlan) -> None:
        """Hold both halves."""
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.fc1 = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.act, self.fc2 = plan.activation(), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        """Transform tokens [n, t, width]."""
        tokens = tokens + self.attention(self.norm1(tokens))
        return tokens + self.fc2(self.act(self.fc1(self.norm2(tokens))))


class FirstToken(nn.Module):
    """Tokens [n, t, width] → the class token [n, width]."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Pick the first."""
        return tokens[:, 0]


def initialise_vit(module: nn.Module, kind: str, parameter: Tensor, rng: Generator) -> None:
    """Linear layers as in PyTorch, norms 1 and 0, class token and positions N(0, 0.02²)."""
    if isinstance(module, nn.LayerNorm):
        parameter.fill_(1.0 if kind == "weight" else 0.0)
    elif isinstance(module, Tokens):
        init.normal_(parameter, std=0.02, generator=rng)
    else:
        default(module, kind, parameter, rng)
