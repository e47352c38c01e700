"""The plain loop: gradient inversion as anyone would write it in PyTorch, with nothing of leakscope in it.

    minimise over x in [0, 1]:   1 − cos(g(x), t) + weight · (mean|∂x/∂column| + mean|∂x/∂row|)

by Adam on the sign of the gradient, which comes from a second-order graph (double backward). It is the anchor of the
benchmark: a tool that is slower than this, tuned, is worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import victim as victims

STARTS = ("grey", "uniform")
SCHEDULES = ("linear", "constant")
REPLAYS = ("one-gradient", "simulate")
# Deviation of the noise on a grey start: pictures are told apart by it, and it hides nothing of them.
NOISE = 0.05

Predict = Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class Settings:
    """What is tuned; rates are in units of the pixels' range."""

    rate: float = 0.12
    tv: float = 2e-4
    start: str = "grey"
    schedule: str = "linear"


def begin(start: str, shape: Sequence[int], *, seed: int) -> Tensor:
    """Grey with little noise, or uniform noise."""
    rng = torch.Generator().manual_seed(seed)
    if start == "uniform":
        return torch.rand(*shape, generator=rng)
    return 0.5 + NOISE * torch.randn(*shape, generator=rng)


def rate_at(settings: Settings, step: int, *, steps: int) -> float:
    """The rate of step 0, 1, …: held, or falling on a straight line that would be 0 at step `steps`."""
    return settings.rate * (1 - step / steps if settings.schedule == "linear" else 1.0)


def variation(x: Tensor) -> Tensor:
    """Mean absolute difference between neighbours in a row, plus that in a column."""
    return (x[..., :, 1:] - x[..., :, :-1]).abs().mean() + (x[..., 1:, :] - x[..., :-1, :]).abs().mean()


def mismatch(found: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """1 − cosine between two updates, each taken as one long vector."""
    pairs = list(zip(found, target, strict=True))
    inner = torch.stack([(f * t).sum() for f, t in pairs]).sum()
    own, other = (torch.stack([part.square().sum() for part in parts]).sum().sqrt() for parts in (found, target))
    return 1 - inner / (own * other)


def one_gradient(model: nn.Module, labels: Tensor) -> Predict:
    """The mean gradient of all images, as a differentiable function of them."""
    parameters = list(model.parameters())
    return lambda x: torch.autograd.grad(cross_entropy(model(x), labels), parameters, create_graph=True)


def local_steps(model: nn.Module, labels: Tensor, local: victims.Local) -> Predict:
    """The change of the weights by local SGD, as a differentiable function of all images.

    The steps are added up by themselves: the difference of two nearly equal weights would keep few of their digits.
    """
    names, weights = zip(*model.named_parameters(), strict=True)

    def predict(x: Tensor) -> Sequence[Tensor]:
        change = [torch.zeros_like(weight) for weight in weights]
        for chosen in local.order():
            moved = [weight + part for weight, part in zip(weights, change, strict=True)]
            logits = torch.func.functional_call(model, dict(zip(names, moved, strict=True)), (x[chosen],))
            grads = torch.autograd.grad(cross_entropy(logits, labels[chosen]), moved, create_graph=True)
            change = [part - local.lr * grad for part, grad in zip(change, grads, strict=True)]
        return change

    return predict


def slope(predict: Predict, target: Sequence[Tensor], x: Tensor, *, tv: float) -> tuple[Tensor, float]:
    """The gradient of the whole objective at `x`, and the matching distance alone."""
    x = x.detach().requires_grad_()
    distance = mismatch(predict(x), target)
    (gradient,) = torch.autograd.grad(distance + tv * variation(x), x)
    return gradient, float(distance.detach())


def search(
    predict: Predict, target: Sequence[Tensor], x: Tensor, *, settings: Settings, steps: int
) -> Iterator[tuple[Tensor, float]]:
    """Yield the picture after each step, and the matching distance before it; `steps` evaluations in all."""
    x = x.clone().clamp_(0, 1)
    adam = torch.optim.Adam([x], lr=settings.rate)
    for step in range(steps):
        gradient, distance = slope(predict, target, x, tv=settings.tv)
        x.grad = gradient.sign()
        adam.param_groups[0]["lr"] = rate_at(settings, step, steps=steps)
        adam.step()
        x.clamp_(0, 1)
        yield x, distance
