"""Small copies of the networks under test, and plain double backward as the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from leakscope.rng import generator


class Block(nn.Module):
    """Basic residual block, with the in-place operations networks in the wild use."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.short = nn.Sequential()
        if stride != 1 or before != after:
            self.short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += self.short(x)
        return self.relu(y)


class Unit(nn.Sequential):
    """Convolution, norm, activation."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())


def _mlp() -> nn.Module:
    hidden = [nn.Linear(768, 40), nn.ReLU(), nn.Linear(40, 24), nn.BatchNorm1d(24), nn.Tanh()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(24, 10))


def _lenet() -> nn.Module:
    layers: list[nn.Module] = []
    for before, stride in ((3, 2), (12, 2), (12, 1), (12, 1)):
        layers += [nn.Conv2d(before, 12, 5, stride, 2), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(192, 10))


def _convnet() -> nn.Module:
    front = [Unit(3, 32), Unit(32, 40), Unit(40, 40), Unit(40, 48), nn.MaxPool2d(3)]
    return nn.Sequential(*front, Unit(48, 48), Unit(48, 48), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(48, 10))


def _resnet() -> nn.Module:
    blocks = [Block(32, 32, 1), Block(32, 32, 1), Block(32, 40, 2), Block(40, 40, 1)]
    return nn.Sequential(Unit(3, 32), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 10))


NETWORKS: dict[str, Callable[[], nn.Module]] = {"mlp": _mlp, "lenet": _lenet, "convnet": _convnet, "resnet": _resnet}


@dataclass(frozen=True)
class Oracle:
    """What plain double backward finds, group by group."""

    gradients: dict[str, Tensor]
    inputs: Tensor
    targets: Tensor | None


@dataclass(frozen=True)
class Bench:
    """Builders and the oracle, for tests that cannot import a sibling file."""

    names = tuple(NETWORKS)

    def network(self, name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
        """A small network with non-trivial norms, in evaluation mode."""
        return self.settle(NETWORKS[name](), dtype)

    def settle(self, model: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
        """Fill parameters and statistics from a seed that does not depend on global state."""
        rng = generator(0, "settle")
        for parameter in model.parameters():
            spread = max(parameter[0].numel(), 1) ** -0.5
            parameter.data = torch.empty_like(parameter).uniform_(-spread, spread, generator=rng) * 2
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                for value, low in ((module.weight, 0.5), (module.running_var, 0.5), (module.running_mean, -0.5)):
                    if value is not None:
                        value.data.uniform_(low, low + 1, generator=rng)
        return model.to(dtype).eval()

    def problem(
        self, groups: int, n: int, *, soft: bool = False, dtype: torch.dtype = torch.float64, seed: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Images [G, n, 3, 16, 16] and targets."""
        rng = generator(seed, "problem", groups, n)
        inputs = torch.rand(groups, n, 3, 16, 16, generator=rng, dtype=torch.float64).to(dtype)
        if soft:
            return inputs, torch.rand(groups, n, 10, generator=rng, dtype=torch.float64).softmax(-1).to(dtype)
        return inputs, torch.randint(0, 10, (groups, n), generator=rng)

    def oracle(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        direction: Mapping[str, Tensor],
        loss=functional.cross_entropy,
    ) -> Oracle:
        """Differentiate twice with autograd."""
        parameters = {name: p.detach().requires_grad_() for name, p in model.named_parameters() if p.requires_grad}
        rows = []
        for group in range(len(inputs)):
            leaves = [inputs[group].clone().requires_grad_(), targets[group].clone()]
            if targets.is_floating_point():
                leaves[1].requires_grad_()
            value = loss(functional_call(model, parameters, (leaves[0].clone(),)), leaves[1])
            found = torch.autograd.grad(value, list(parameters.values()), create_graph=True)
            named = dict(zip(parameters, found, strict=True))
            inner = torch.stack([(named[name] * v[group]).sum() for name, v in direction.items()]).sum()
            rows.append((found, torch.autograd.grad(inner, leaves if targets.is_floating_point() else leaves[:1])))
        return Oracle(
            {name: torch.stack([row[0][k].detach() for row in rows]) for k, name in enumerate(parameters)},
            torch.stack([row[1][0] for row in rows]),
            torch.stack([row[1][1] for row in rows]) if targets.is_floating_point() else None,
        )

    def error(self, found: Tensor, expected: Tensor) -> float:
        """Relative Euclidean error."""
        return float((found - expected).norm() / expected.norm())

    def cosine(self, found: Tensor, expected: Tensor) -> float:
        """Cosine of the angle between two tensors."""
        return float(functional.cosine_similarity(found.double().flatten(), expected.double().flatten(), dim=0))

    def matching_direction(self, found: Mapping[str, Tensor], goal: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """∂/∂g of 1 − cos(g, goal), per group."""
        flat, target = (torch.cat([value.flatten(1) for value in side.values()], 1) for side in (found, goal))
        length, other, dot = flat.norm(dim=1), target.norm(dim=1), (flat * target).sum(1)
        first, second = -1 / (length * other), dot / (length**3 * other)
        shape = {name: (-1, *(1,) * (value.ndim - 1)) for name, value in found.items()}
        return {n: goal[n] * first.view(shape[n]) + found[n] * second.view(shape[n]) for n in found}


@pytest.fixture(scope="session")
def bench() -> Bench:
    """Builders and oracle."""
    return Bench()
