"""Parameters of one layer, with the batch norm behind it folded in exactly.

Evaluation-mode batch norm after a linear map, γ(Wx + b − μ)/σ + β, is the linear map
W' = sW, b' = s(b − μ) + β with s = γ/σ. Its own gradients need no activation:

    W̄ = s·W̄'    b̄ = s·b̄'    β̄ = b̄'    γ̄ = (⟨W, W̄'⟩ + (b − μ)·b̄')/σ     (per output channel)

so the network that runs holds no batch norm, and every shared gradient is still there.

After a local step every group has parameters of its own: `at` gives the same rules around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from leakscope.fastgrad.parameters import EvaluationNorm, LayerParameter, find


@dataclass(slots=True)
class Weights:
    """What a layer multiplies with and adds: shared by all groups, or with a leading group axis."""

    weight: Tensor | None
    bias: Tensor | None
    shared: bool = True

    def without_group_axis(self) -> Weights:
        """One group needs no group axis, and shared weights take the faster products."""
        if self.weight is None or len(self.weight) > 1:
            return self
        return Weights(self.weight[0], None if self.bias is None else self.bias[0])


@dataclass(frozen=True)
class FoldedWeights:
    """Weight and bias of a linear map together with the norm that follows it."""

    weight: LayerParameter
    bias: LayerParameter | None = None
    norm: EvaluationNorm | None = None

    @cached_property
    def centre(self) -> Tensor:
        """b − μ."""
        if self.norm is None:
            raise RuntimeError("only a layer with a norm has a centre")
        return -self.norm.mean if self.bias is None else self.bias.value - self.norm.mean

    @property
    def parts(self) -> tuple[LayerParameter, ...]:
        """All parameters, the weight first."""
        norm = () if self.norm is None else (self.norm.gamma, self.norm.beta)
        return (self.weight, *norm) if self.bias is None else (self.weight, self.bias, *norm)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters that get a gradient."""
        return tuple(part.name for part in self.parts if part.name is not None)

    @property
    def wants_bias(self) -> bool:
        """Whether some shared gradient is made from b̄'."""
        return any(part.name is not None for part in self.parts if part is not self.weight)

    @property
    def wants_weight(self) -> bool:
        """Whether some shared gradient is made from W̄'."""
        return self.weight.name is not None or (self.norm is not None and self.norm.gamma.name is not None)

    def at(self, offset: Mapping[str, Tensor]) -> FoldedWeights:
        """The same layer with its named parameters moved, each group by its own `offset` [G, …]."""
        bias, norm = self.bias, self.norm
        return FoldedWeights(
            self.weight.at(offset),
            None if bias is None else bias.at(offset),
            None if norm is None else norm.at(offset),
        )

    def fold(self) -> Weights:
        """W' and b'; with an axis of groups where a parameter has one."""
        weight, bias = self.weight.value, self._fold_bias()
        if self.norm is not None:
            weight = weight * self._as_rows(self.norm.scale)
        groups = next((len(part.value) for part in self.parts if part.grouped), None)
        if groups is None:
            return Weights(weight, bias)
        weight = weight.expand(groups, *self.weight.one.shape)
        return Weights(weight, None if bias is None else bias.expand(groups, bias.shape[-1]), shared=False)

    def split(self, gradient: Weights, *, keep: bool = False) -> dict[str, Tensor]:
        """Gradients [G, …] of the named parameters from those of W' and b', which it consumes unless told to `keep`."""
        weight, bias = gradient.weight, gradient.bias
        found: list[tuple[LayerParameter | None, Tensor | None]] = []
        if self.norm is not None:
            if weight is not None and bias is not None:
                inner = (weight * self.weight.value).reshape(*bias.shape, -1).sum(2)
                found.append((self.norm.gamma, (inner + self.centre * bias) / self.norm.sigma))
            found.append((self.norm.beta, bias))
            rows = self._as_rows(self.norm.scale)
            weight = None if weight is None else weight * rows if keep else weight.mul_(rows)
            bias = None if bias is None else bias * self.norm.scale
        found += [(self.weight, weight), (self.bias, bias)]
        named = ((part.name, value) for part, value in found if part is not None and value is not None)
        return {name: value for name, value in named if name is not None}

    def split_change(self, gradient: Weights, change: Weights, direction: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """How `split(gradient)` moves when the parameters move along `direction`, and W̄', b̄' along `change`.

        The product rule: with a norm, W̄ = s·W̄' moves by ṡ·W̄' as well, γ̄ by (⟨Ẇ, W̄'⟩ + ḃ·b̄')/σ.
        """
        found = self.split(change)
        if self.norm is None:
            return found
        gamma, along = find(direction, self.norm.gamma), find(direction, self.weight)
        shift = find(direction, self.bias)
        weight, bias = gradient.weight, gradient.bias
        more: list[tuple[LayerParameter | None, Tensor]] = []
        if gamma is not None and weight is not None:
            more.append((self.weight, weight * self._as_rows(gamma / self.norm.sigma)))
        if gamma is not None and bias is not None:
            more.append((self.bias, bias * gamma / self.norm.sigma))
        if along is not None and weight is not None:
            more.append((self.norm.gamma, (weight * along).flatten(2).sum(2) / self.norm.sigma))
        if shift is not None and bias is not None:
            more.append((self.norm.gamma, bias * shift / self.norm.sigma))
        for part, value in more:
            if part is not None and part.name in found:
                found[part.name] = found[part.name] + value
        return found

    def merge(self, direction: Mapping[str, Tensor], groups: int) -> Weights | None:
        """Change [G, …] of W' and b' when the named parameters move along `direction`."""
        if not any(name in direction for name in self.names):
            return None
        ones = self.weight.value.new_ones(groups, 1)
        rows = torch.zeros_like(ones if self.norm is None else self.norm.scale)
        weight = self._combine(direction, rows=rows, sizes=ones)
        return Weights(weight, self._change_bias(direction), shared=False)

    def move(self, direction: Mapping[str, Tensor], sizes: Tensor) -> Weights:
        """W' and b' after a step of `sizes` [G, 1] along `direction`, to first order.

        The same as adding sizes·merge(direction), in fewer passes over the weights.
        """
        rows = torch.ones_like(sizes) if self.norm is None else self.norm.scale
        bias, change = self._fold_bias(), self._change_bias(direction)
        if bias is not None:
            bias = bias.expand(len(sizes), -1) if change is None else bias + sizes * change
        return Weights(self._combine(direction, rows=rows, sizes=sizes), bias, shared=False)

    def _combine(self, direction: Mapping[str, Tensor], *, rows: Tensor, sizes: Tensor) -> Tensor:
        """rows·W plus sizes times the change of W', as [G, …]."""
        along, weight = find(direction, self.weight), self.weight.value
        gamma = None if self.norm is None else find(direction, self.norm.gamma)
        if gamma is not None and self.norm is not None:
            rows = rows + sizes * gamma / self.norm.sigma
        result = weight * self._as_rows(rows.expand(len(sizes), -1))
        if along is None:
            return result
        return result.addcmul_(along, self._as_rows(sizes if self.norm is None else sizes * self.norm.scale))

    def _as_rows(self, vector: Tensor) -> Tensor:
        """[…, out] shaped to multiply weight [out, …] row by row."""
        return vector.reshape(*vector.shape, *(1,) * (self.weight.one.ndim - 1))

    def _fold_bias(self) -> Tensor | None:
        """b'."""
        if self.norm is None:
            return None if self.bias is None else self.bias.value
        return self.norm.scale * self.centre + self.norm.beta.value

    def _change_bias(self, direction: Mapping[str, Tensor]) -> Tensor | None:
        """Change [G, out] of b'."""
        bias = find(direction, self.bias)
        if self.norm is None:
            return bias
        gamma, beta = find(direction, self.norm.gamma), find(direction, self.norm.beta)
        parts = (
            None if bias is None else bias * self.norm.scale,
            None if gamma is None else gamma / self.norm.sigma * self.centre,
            beta,
        )
        present = [part for part in parts if part is not None]
        return torch.stack(present).sum(0) if present else None
