"""Parameters as layers read them: shared by all groups, or one value for each group after a local step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class LayerParameter:
    """A constant, and the name under which its gradient is shared (None: it is not).

    `grouped`: every group has a value of its own, along a leading axis.
    """

    value: Tensor
    name: str | None = None
    grouped: bool = False

    @property
    def one(self) -> Tensor:
        """The value of one group."""
        return self.value[0] if self.grouped else self.value

    @cached_property
    def size(self) -> Tensor:
        """Euclidean norm, of every group where each has its own."""
        return torch.linalg.vector_norm(self.value.flatten(1), dim=1) if self.grouped else self.value.norm()

    def at(self, offset: Mapping[str, Tensor]) -> LayerParameter:
        """The parameter moved by its part [G, …] of `offset`."""
        change = find(offset, self)
        return self if change is None else LayerParameter(self.value + change, self.name, grouped=True)


@dataclass(frozen=True)
class EvaluationNorm:
    """Evaluation-mode batch norm: (x − mean)/sigma·gamma + beta."""

    mean: Tensor
    sigma: Tensor
    gamma: LayerParameter
    beta: LayerParameter

    @cached_property
    def scale(self) -> Tensor:
        """s = γ/σ."""
        return self.gamma.value / self.sigma

    def at(self, offset: Mapping[str, Tensor]) -> EvaluationNorm:
        """The norm with γ and β moved."""
        return replace(self, gamma=self.gamma.at(offset), beta=self.beta.at(offset))


def read_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, names: Mapping[int, str]) -> EvaluationNorm:
    """Read an evaluation-mode batch norm; `names` maps id(parameter) to its shared name."""
    mean, variance = module.running_mean, module.running_var
    if mean is None or variance is None:
        raise TypeError("read_norm needs running statistics; check before calling")
    return EvaluationNorm(
        mean=mean.detach(),
        sigma=(variance.detach() + module.eps).sqrt(),
        gamma=read_parameter(module.weight, names) or LayerParameter(torch.ones_like(mean)),
        beta=read_parameter(module.bias, names) or LayerParameter(torch.zeros_like(mean)),
    )


def read_parameter(value: Tensor | None, names: Mapping[int, str]) -> LayerParameter | None:
    """Wrap a tensor of the model, with its shared name if it has one."""
    return None if value is None else LayerParameter(value.detach(), names.get(id(value)))


def find(direction: Mapping[str, Tensor], part: LayerParameter | None) -> Tensor | None:
    """The part of `direction` that belongs to a parameter; None stands for zero."""
    return None if part is None or part.name is None else direction.get(part.name)
