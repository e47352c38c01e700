"""Parameters of one layer, with the batch norm behind it folded in exactly.

Evaluation-mode batch norm after a linear map, γ(Wx + b − μ)/σ + β, is the linear map
W' = sW, b' = s(b − μ) + β with s = γ/σ. Its own gradients need no activation:

    W̄ = s·W̄'    b̄ = s·b̄'    β̄ = b̄'    γ̄ = (⟨W, W̄'⟩ + (b − μ)·b̄')/σ     (per output channel)

so the network that runs holds no batch norm, and every shared gradient is still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from leakscope.fastgrad.op import Weights


@dataclass(frozen=True)
class Parameter:
    """A constant, and the name under which its gradient is shared (None: it is not)."""

    value: Tensor
    name: str | None = None

    @cached_property
    def size(self) -> Tensor:
        """Euclidean norm."""
        return torch.linalg.vector_norm(self.value)


@dataclass(frozen=True)
class Norm:
    """Evaluation-mode batch norm: (x − mean)/sigma·gamma + beta."""

    mean: Tensor
    sigma: Tensor
    gamma: Parameter
    beta: Parameter


@dataclass(frozen=True)
class FoldedWeights:
    """Weight and bias of a linear map together with the norm that follows it."""

    weight: Parameter
    bias: Parameter | None = None
    norm: Norm | None = None
    scale: Tensor | None = field(init=False, default=None)
    centre: Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.norm is None:
            return
        object.__setattr__(self, "scale", self.norm.gamma.value / self.norm.sigma)
        mean = self.norm.mean
        object.__setattr__(self, "centre", -mean if self.bias is None else self.bias.value - mean)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters that get a gradient."""
        return tuple(part.name for part in self.parts() if part.name is not None)

    @property
    def wants_bias(self) -> bool:
        """Whether some shared gradient is made from b̄'."""
        return any(part.name is not None for part in self.parts() if part is not self.weight)

    @property
    def wants_weight(self) -> bool:
        """Whether some shared gradient is made from W̄'."""
        return self.weight.name is not None or (self.norm is not None and self.norm.gamma.name is not None)

    def folded(self) -> Weights:
        """W' and b'."""
        weight, bias = self.weight.value, self._bias()
        if self.scale is not None:
            weight = weight * _rows(self.scale, weight)
        return Weights(weight, bias)

    def split(self, gradient: Weights) -> dict[str, Tensor]:
        """Gradients [G, …] of the named parameters from those of W' and b' (consumes them)."""
        weight, bias = gradient.weight, gradient.bias
        found: list[tuple[Parameter | None, Tensor | None]] = []
        if self.norm is not None and self.scale is not None and self.centre is not None:
            if weight is not None and bias is not None:
                inner = (weight * self.weight.value).reshape(*bias.shape, -1).sum(2)
                found.append((self.norm.gamma, (inner + self.centre * bias) / self.norm.sigma))
            found.append((self.norm.beta, bias))
            weight = None if weight is None else weight.mul_(_rows(self.scale, self.weight.value))
            bias = None if bias is None else bias * self.scale
        found += [(self.weight, weight), (self.bias, bias)]
        named = ((part.name, value) for part, value in found if part is not None and value is not None)
        return {name: value for name, value in named if name is not None}

    def merge(self, direction: Mapping[str, Tensor], groups: int) -> Weights | None:
        """Change [G, …] of W' and b' when the named parameters move along `direction`."""
        if not any(name in direction for name in self.names):
            return None
        ones = self.weight.value.new_ones(groups, 1)
        rows = torch.zeros_like(ones) if self.scale is None else torch.zeros_like(self.scale)
        bias = self._bias_change(direction)
        return Weights(self._weight(direction, rows=rows, sizes=ones), bias, shared=False)

    def moved(self, direction: Mapping[str, Tensor], sizes: Tensor) -> Weights:
        """W' and b' after a step of `sizes` [G, 1] along `direction`, to first order.

        The same as adding sizes·merge(direction), in fewer passes over the weights.
        """
        rows = torch.ones_like(sizes) if self.scale is None else self.scale
        bias, change = self._bias(), self._bias_change(direction)
        if bias is not None:
            bias = bias.expand(len(sizes), -1) if change is None else bias + sizes * change
        return Weights(self._weight(direction, rows=rows, sizes=sizes), bias, shared=False)

    def _weight(self, direction: Mapping[str, Tensor], *, rows: Tensor, sizes: Tensor) -> Tensor:
        """rows·W plus sizes times the change of W', as [G, …]."""
        along, weight = _named(direction, self.weight), self.weight.value
        gamma = None if self.norm is None else _named(direction, self.norm.gamma)
        if gamma is not None and self.norm is not None:
            rows = rows + sizes * gamma / self.norm.sigma
        result = weight * _rows(rows.expand(len(sizes), -1), weight)
        if along is None:
            return result
        return result.addcmul_(along, _rows(sizes if self.scale is None else sizes * self.scale, weight))

    def _bias(self) -> Tensor | None:
        """b'."""
        if self.norm is None or self.scale is None or self.centre is None:
            return None if self.bias is None else self.bias.value
        return self.scale * self.centre + self.norm.beta.value

    def _bias_change(self, direction: Mapping[str, Tensor]) -> Tensor | None:
        """Change [G, out] of b'."""
        bias = _named(direction, self.bias)
        if self.norm is None or self.scale is None or self.centre is None:
            return bias
        gamma, beta = _named(direction, self.norm.gamma), _named(direction, self.norm.beta)
        parts = (
            None if bias is None else bias * self.scale,
            None if gamma is None else gamma / self.norm.sigma * self.centre,
            beta,
        )
        present = [part for part in parts if part is not None]
        return torch.stack(present).sum(0) if present else None

    def parts(self) -> Iterable[Parameter]:
        """All parameters, the weight first."""
        yield self.weight
        if self.bias is not None:
            yield self.bias
        if self.norm is not None:
            yield from (self.norm.gamma, self.norm.beta)


def norm_of(module: nn.BatchNorm1d | nn.BatchNorm2d, names: Mapping[int, str]) -> Norm:
    """Read an evaluation-mode batch norm; `names` maps id(parameter) to its shared name."""
    mean, variance = module.running_mean, module.running_var
    if mean is None or variance is None:
        raise TypeError("norm_of needs running statistics; check before calling")
    return Norm(
        mean=mean.detach(),
        sigma=(variance.detach() + module.eps).sqrt(),
        gamma=parameter(module.weight, names) or Parameter(torch.ones_like(mean)),
        beta=parameter(module.bias, names) or Parameter(torch.zeros_like(mean)),
    )


def parameter(value: Tensor | None, names: Mapping[int, str]) -> Parameter | None:
    """Wrap a tensor of the model, with its shared name if it has one."""
    return None if value is None else Parameter(value.detach(), names.get(id(value)))


def _named(direction: Mapping[str, Tensor], part: Parameter | None) -> Tensor | None:
    return None if part is None or part.name is None else direction.get(part.name)


def _rows(vector: Tensor, weight: Tensor) -> Tensor:
    """[…, out] shaped to multiply weight [out, …] row by row."""
    return vector.reshape(*vector.shape, *(1,) * (weight.ndim - 1))
