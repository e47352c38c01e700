"""Batch norm with the statistics of the batch, as in training mode: y = γx̂ + β with x̂ = (x − μ)/σ, σ² = var + ε.

Mean μ and (biased) variance are over the examples and positions of one group. With the symmetric operator

    P(u) = (u − mean(u) − x̂·mean(x̂u)) / σ

the derivatives are short: x̂ moves by P(ẋ), σ by mean(x̂ẋ), and

    backward  x̄ = P(γȳ),  γ̄ = Σ ȳx̂,  β̄ = Σ ȳ
    push      ẏ = γP(ẋ) + γ̇x̂ + β̇
    pull      d/dε x̄ = P(γȳ̇ + γ̇ȳ) − [σ̇·P(γȳ) + P(ẋ)·mean(x̂γȳ) + x̂·mean(P(ẋ)γȳ)] / σ
              d/dε γ̄ = Σ ȳ̇x̂ + ȳP(ẋ),  d/dε β̄ = Σ ȳ̇

Statistics are linear in nothing, so nothing is folded here, and a second pass of "differences" computes them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat

import torch
from torch import Tensor, nn

from leakscope.fastgrad.layer import CompiledLayer, Layout, Memo, require, sum_positions
from leakscope.fastgrad.parameters import LayerParameter, read_parameter
from leakscope.fastgrad.weighted import WeightedLayer
from leakscope.fastgrad.weights import FoldedWeights, Weights


@dataclass(frozen=True)
class GroupPass:
    """What one group's pass leaves behind: its input [n, C, …], the mean and 1/σ of each channel."""

    x: Tensor
    mean: Tensor
    scale: Tensor

    @property
    def normalised(self) -> Tensor:
        """x̂."""
        return (self.x - along_channels(self.mean, self.x)) * along_channels(self.scale, self.x)

    def project(self, values: Tensor, normalised: Tensor) -> Tensor:
        """P(values)."""
        centred = values - mean_positions(values) - normalised * mean_positions(normalised * values)
        return centred * along_channels(self.scale, values)


class BatchNorm(WeightedLayer):
    """Normalises every group by its own statistics, in plain images or in Winograd's tiles."""

    layout: Layout = "any"

    def __init__(self, folded: FoldedWeights, *, eps: float) -> None:
        self.eps = eps
        super().__init__(folded)

    def forward(self, memo: Memo, *inputs: Tensor) -> Tensor:
        """Return γx̂ + β."""
        passes: list[GroupPass] = []
        rows: list[Tensor] = []
        for x, (gamma, beta) in zip(split(inputs[0], memo.groups), _weights(memo), strict=False):
            y, mean, scale = torch.native_batch_norm(x, gamma, beta, None, None, True, 0.0, self.eps)
            passes.append(GroupPass(x, mean, scale))
            rows.append(y)
        memo.passes = passes
        return join(rows, like=inputs[0])

    def backward(self, memo: Memo, grad: Tensor) -> tuple[Tensor, ...]:
        """Return P(γȳ); where they are wanted also record γ̄ and β̄."""
        found = [
            torch.ops.aten.native_batch_norm_backward(
                g, one.x, gamma, None, None, one.mean, one.scale, True, self.eps, [True, memo.records, memo.records]
            )
            for g, one, (gamma, _) in zip(split(grad, memo.groups), require(memo.passes), _weights(memo), strict=False)
        ]
        if memo.records:
            memo.gradient = Weights(
                torch.stack([row[1] for row in found]), torch.stack([row[2] for row in found]), False
            )
            memo.upstream = grad if memo.keep else None
            memo.passes = memo.passes if memo.keep else None
        return (join([row[0] for row in found], like=grad),)

    def push(self, memo: Memo, *tangents: Tensor | None) -> Tensor | None:
        """Return γP(ẋ) + γ̇x̂ + β̇."""
        memo.tangent = tangents[0]
        if tangents[0] is None and memo.change is None:
            return None
        rows: list[Tensor] = []
        moved = repeat(None) if tangents[0] is None else split(tangents[0], memo.groups)
        for one, x, (gamma, _), (scaled, shifted) in zip(
            require(memo.passes), moved, _weights(memo), _changes(memo), strict=False
        ):
            normalised = one.normalised
            y = torch.zeros_like(normalised)
            if x is not None:
                y = one.project(x, normalised) * along_channels(gamma, x)
            if scaled is not None:
                y = y + normalised * along_channels(scaled, y)
            if shifted is not None:
                y = y + along_channels(shifted, y)
            rows.append(y)
        return join(rows, like=require(memo.upstream))

    def pull(self, memo: Memo, change: Tensor) -> tuple[Tensor, ...]:
        """Return P(γȳ̇ + γ̇ȳ) plus what the motion of the statistics adds."""
        rows: list[Tensor] = []
        changes: list[Tensor] = []
        moved = repeat(None) if memo.tangent is None else split(memo.tangent, memo.groups)
        for one, x, upstream, grad, (gamma, _), (scaled, _) in zip(
            require(memo.passes),
            moved,
            split(require(memo.upstream), memo.groups),
            split(change, memo.groups),
            _weights(memo),
            _changes(memo),
            strict=False,
        ):
            normalised, factor = one.normalised, along_channels(gamma, grad)
            along = grad * factor if scaled is None else grad * factor + upstream * along_channels(scaled, grad)
            result = one.project(along, normalised)
            if x is not None:
                result = result - _move_statistics(one, x, upstream * factor, normalised)
            rows.append(result)
            changes.append(_move_gradients(one, x, upstream, grad) if memo.curved else grad[:0])
        if memo.curved:
            memo.gradient_change = Weights(*torch.stack(changes, dim=1), shared=False)
        return (join(rows, like=change),)


def _move_statistics(one: GroupPass, x: Tensor, values: Tensor, normalised: Tensor) -> Tensor:
    """[σ̇·P(u) + P(ẋ)·mean(x̂u) + x̂·mean(P(ẋ)u)] / σ for u = `values`."""
    turned = one.project(x, normalised)
    moved = one.project(values, normalised) * mean_positions(normalised * x)
    moved = moved + turned * mean_positions(normalised * values) + normalised * mean_positions(turned * values)
    return moved * along_channels(one.scale, moved)


def _move_gradients(one: GroupPass, x: Tensor | None, upstream: Tensor, grad: Tensor) -> Tensor:
    """The changes of γ̄ and β̄ [2, C], when the input moves along `x` and `upstream` along `grad`."""
    normalised = one.normalised
    scaled = grad * normalised if x is None else grad * normalised + upstream * one.project(x, normalised)
    return torch.stack([sum_positions(values, 1)[0] for values in (scaled, grad)])


def _weights(memo: Memo) -> list[tuple[Tensor, Tensor]]:
    """γ and β of every group."""
    weights = require(memo.weights)
    gamma, beta = require(weights.weight), require(weights.bias)
    if weights.shared:
        return [(gamma, beta)] * memo.groups
    return list(zip(gamma.contiguous(), beta.contiguous(), strict=True))


def _changes(memo: Memo) -> list[tuple[Tensor | None, Tensor | None]]:
    """γ̇ and β̇ of every group; None stands for zero."""
    if memo.change is None:
        return [(None, None)] * memo.groups
    both = (memo.change.weight, memo.change.bias)
    if memo.change.shared:
        return [both] * memo.groups
    rows = [[None] * memo.groups if part is None else list(part) for part in both]
    return list(zip(*rows, strict=True))


def split(values: Tensor, groups: int) -> list[Tensor]:
    """Groups as [n, C, …] each; tiles [4, 4, G·n, h, w, C] as images of tiles with channels last in memory."""
    if values.ndim != 6:
        return list(values.contiguous().chunk(groups))
    return [part.reshape(-1, *part.shape[3:]).permute(0, 3, 1, 2) for part in values.chunk(groups, dim=2)]


def join(rows: list[Tensor], *, like: Tensor) -> Tensor:
    """The way back from `split`, to the shape of `like`."""
    if like.ndim != 6:
        return rows[0] if len(rows) == 1 else torch.cat(rows)
    side, count = like.shape[:2], like.shape[2] // len(rows)
    parts = [row.permute(0, 2, 3, 1).reshape(*side, count, *like.shape[3:]) for row in rows]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)


def mean_positions(values: Tensor) -> Tensor:
    """[n, C, …] averaged over examples and positions, with those axes kept."""
    return values.mean([axis for axis in range(values.ndim) if axis != 1], keepdim=True)


def along_channels(vector: Tensor, like: Tensor) -> Tensor:
    """[C] against [n, C, …]."""
    return vector.reshape(1, -1, *(1,) * (like.ndim - 2))


def uses_batch_statistics(module: nn.Module) -> bool:
    """Whether a batch norm takes its statistics from the batch."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and (
        module.training or module.running_mean is None or module.running_var is None
    )


def compile_batch_statistics(
    module: nn.BatchNorm1d | nn.BatchNorm2d, names: dict[int, str], *, like: Tensor
) -> CompiledLayer:
    """A batch norm in training mode, or one that keeps no running statistics; `like` is what it receives."""
    like = like.new_ones(module.num_features)
    gamma = read_parameter(module.weight, names) or LayerParameter(like)
    beta = read_parameter(module.bias, names) or LayerParameter(torch.zeros_like(like))
    return BatchNorm(FoldedWeights(gamma, beta), eps=module.eps)
