"""Where the recursion begins: the gradient k at the logits, from the last layer alone.

With a bias k was shared. Without one, ∂L/∂W = k xᵀ fixes k up to a factor t, and the loss fixes
t: with ∂L/∂W = v wᵀ the logits are o = t W w + b, so t · (∂L/∂o)(o) = v has to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakscope.attacks.closed.recursive.layer_chain import LayerBlock
from leakscope.errors import UnsuitableError
from leakscope.types import Loss, Observation

# With |v| = 1 a loss whose gradient is at most √2 long has |t| ≥ 0.7; 1e9 is a gradient lost in rounding.
_GRID = torch.logspace(-3, 9, 241, dtype=torch.float64).tolist()
# A double root that rounding has lifted off the axis is still a root.
_TOUCHES = 1e-3
# Two roots between neighbours of the grid leave the equation this near to zero there.
_NEAR = 0.2


@dataclass(frozen=True, eq=False)
class Start:
    """Gradient at the output of a layer, its input, and the target this supposes."""

    gradient: Tensor
    inputs: Tensor
    target: Tensor | None = None


def from_bias(weight: Tensor, bias: Tensor) -> Start:
    """k is the bias gradient itself; x = Gᵀk/‖k‖² weighs all rows."""
    return Start(bias, weight.T @ bias / bias.square().sum())


def from_loss(seen: Observation, block: LayerBlock, weight: Tensor) -> list[Start]:
    """Every start that the last weight gradient and the loss allow, smallest logits first."""
    left, values, right = torch.linalg.svd(weight, full_matrices=False)
    v, w = left[:, 0], values[0] * right[0]
    along, bias = block.weight() @ w, block.bias()
    found = [
        Start(v / t, t * w, target)
        for target in _targets(seen, v)
        for t in _roots(_equation(seen.loss, target, v=v, along=along, bias=bias))
    ]
    return sorted(found, key=lambda start: float(start.inputs.norm()))


def binary_targets(seen: Observation) -> list[Tensor]:
    """The two targets of a single logit in the form the loss takes: 0 and 1, or −1 and 1."""
    logit = torch.full((1, 1), 0.1, device=seen.device, dtype=torch.float64)
    for shape in ((1,), (1, 1)):
        for dtype in (torch.long, seen.dtype):
            zero, one = (torch.full(shape, value, device=seen.device, dtype=dtype) for value in (0, 1))
            try:
                slopes = [_slope(seen.loss, logit[0], target) for target in (zero, one)]
            except (RuntimeError, ValueError, TypeError, IndexError):
                continue
            if not bool(slopes[1].any()):
                continue
            # A target that multiplies the logit must not be zero: then the labels are −1 and 1.
            return [zero if bool(slopes[0].any()) else -one, one]
    raise UnsuitableError(
        "rgap found no form of a binary target that the loss takes: it tried 0 and 1 of shape [1] and [1, 1]; "
        "grant the labels (scenario A or B) or wrap the loss so that it takes targets [n]"
    )


def _targets(seen: Observation, v: Tensor) -> list[Tensor]:
    if seen.targets is not None:
        return [seen.targets[:1]]
    if seen.num_classes == 1:
        return binary_targets(seen)
    # Only the true class has a negative gradient; v is known up to its sign.
    return [torch.tensor([label], device=v.device) for label in (int(v.argmin()), int(v.argmax()))]


def _slope(loss: Loss, logits: Tensor, target: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = logits.detach()[None].requires_grad_()
        wanted = target.to(leaf.dtype) if target.is_floating_point() else target
        return torch.autograd.grad(loss(leaf, wanted), leaf)[0][0]


def _equation(loss: Loss, target: Tensor, *, v: Tensor, along: Tensor, bias: Tensor) -> Callable[[float], float]:
    """t ↦ t ⟨v, ∂L/∂o(t W w + b)⟩ − 1."""

    def value(t: float) -> float:
        return t * float(v @ _slope(loss, t * along + bias, target)) - 1

    return value


def _roots(function: Callable[[float], float]) -> Iterator[float]:
    for sign in (1.0, -1.0):
        places = [sign * place for place in _GRID]
        values = [function(place) for place in places]
        for low, high in _brackets(function, places, values):
            yield low if low == high else _root(function, low, high)


def _brackets(
    function: Callable[[float], float], places: list[float], values: list[float]
) -> Iterable[tuple[float, float]]:
    """Intervals with a change of sign, also where two roots lie between neighbours of the grid."""
    for i in range(1, len(places)):
        if values[i - 1] * values[i] < 0:
            yield places[i - 1], places[i]
    for i in range(1, len(places) - 1):
        near = values[i - 1 : i + 2]
        if min(near) * max(near) <= 0 or abs(near[1]) >= min(abs(near[0]), abs(near[2]), _NEAR):
            continue
        ends = sorted((places[i - 1], places[i + 1]))
        side = 1.0 if near[1] > 0 else -1.0
        turn = _lowest(lambda t, side=side: side * function(t), ends)
        if function(turn) * side < 0:
            yield ends[0], turn
            yield turn, ends[1]
        elif abs(function(turn)) < _TOUCHES:
            yield turn, turn


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    # Here and not above: it takes 0.6 s to import, and every worker of an audit would wait for it.
    from scipy.optimize import brentq

    solve: Any = brentq
    return float(solve(function, low, high, rtol=1e-14, xtol=1e-300))


def _lowest(function: Callable[[float], float], ends: list[float]) -> float:
    from scipy.optimize import minimize_scalar

    found: Any = minimize_scalar(function, bounds=ends, method="bounded", options={"xatol": 1e-9 * abs(ends[0])})
    return float(found.x)
