"""Examples of a batch that alone reached several rows of a linear layer, found by agreement and proven by replay.

Rows agree by chance as well: with two examples all quotients lie on one line. So an input counts
only if, put through the network on its own, it gives these rows the bias gradient that was observed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.attacks.closed.linear.layer_inputs import gradients, parameter_names, to_pixels
from leakscope.attacks.closed.linear.rows import Agreement, agreements
from leakscope.client import replay_gradient, trainable
from leakscope.errors import LeakscopeError, UnsuitableError
from leakscope.matching.labels import infer_labels
from leakscope.matching.replays import OneGradient, scale_known
from leakscope.types import Observation, Tensors, limits_of

# Relative error of the replayed bias gradient above which rows agreed by chance.
PROOF = 1e-3
# The same for one row by itself, which nothing else vouches for: rounding stays below it, chance rarely meets it.
PROOF_OF_ONE = 2e-5
# With so few classes all are tried; beyond, those that the last layer shows.
FEW_CLASSES = 20
# How far outside their range rounding may carry valid numbers.
_SLACK = 1e-3
# Where the replay proves less, for want of a factor or altogether, three rows have to agree: chance makes pairs.
UNPROVEN = 3


@dataclass(frozen=True, eq=False)
class Isolated:
    """One example: pixels [1, …], its label where it could be proven, and how many rows agree on it.

    `factor` is that of its own gradient over the observed one: the batch size, where the rate is known.
    """

    inputs: Tensor
    target: int | None
    rows: int
    factor: float | None = None


def isolate(seen: Observation, layer: str, *, from_rows: int = 2) -> list[Isolated]:
    """Examples that alone reached `from_rows` rows or more, most rows first; at most as many as are behind the update.

    With `from_rows=1` rows that agree with no other are tried as well, where the scale is known and they hold valid data.
    """
    weight, bias = gradients(seen, layer)
    limit = seen.num_examples or len(bias)
    prover = _Prover.of(seen, layer)
    factor = prover.factor()
    found: list[Isolated] = []
    groups = agreements(weight, bias)[: 8 * limit]
    if from_rows == 1 and factor is not None:
        groups += _valid_rows(seen, weight, bias, groups)
    for one in groups:
        inputs = to_pixels(seen, one.inputs[None])
        if any(_same(inputs, other.inputs) for other in found):
            continue
        judged = prover.judge(one, inputs, factor)
        if judged is not None:
            found.append(judged)
            # One batch, one factor: the first that was proven without it fixes it for the others.
            factor = judged.factor if factor is None else factor
        if len(found) == limit:
            break
    return found


@dataclass(frozen=True, eq=False)
class _Prover:
    """Compares the bias gradient of one example alone with the observed one."""

    seen: Observation
    name: str
    observed: Tensor
    parameters: Tensors
    labels: tuple[int, ...]

    @classmethod
    def of(cls, seen: Observation, layer: str) -> _Prover:
        name = parameter_names(layer)[1]
        parameters = {key: value.detach().requires_grad_() for key, value in trainable(seen.model).items()}
        return cls(seen, name, OneGradient().target(seen)[name], parameters, tuple(_labels(seen)))

    def factor(self) -> float | None:
        """An example's own gradient over the observed mean, where batch size and rate are known."""
        return float(self.seen.num_examples) if scale_known(self.seen) and self.seen.num_examples is not None else None

    def judge(self, one: Agreement, inputs: Tensor, factor: float | None) -> Isolated | None:
        """The example, if the replay proves it or, where there is none, if enough rows agree."""
        alone = self._alone(inputs)
        if (factor is None or not alone) and len(one.rows) < UNPROVEN:
            return None
        if not alone:
            return Isolated(inputs, None, len(one.rows))
        observed = self.observed[one.rows].double()
        rated = {label: _compare(value[one.rows].double(), observed, factor) for label, value in alone.items()}
        label = min(rated, key=lambda key: rated[key][0])
        error, implied = rated[label]
        proof = PROOF if len(one.rows) > 1 else PROOF_OF_ONE
        return Isolated(inputs, label, len(one.rows), implied) if error <= proof else None

    def _alone(self, inputs: Tensor) -> dict[int, Tensor]:
        """Bias gradient per label; none where the network or the loss cannot take one example."""
        found: dict[int, Tensor] = {}
        for label in self.labels:
            target = torch.tensor([label], device=inputs.device)
            try:
                found[label] = replay_gradient(
                    self.seen.model, self.parameters, inputs, target, loss=self.seen.loss, create_graph=False
                )[self.name]
            except (LeakscopeError, RuntimeError, ValueError, TypeError, IndexError):
                return {}
        return found


def _compare(alone: Tensor, observed: Tensor, factor: float | None) -> tuple[float, float]:
    """Relative error of alone = factor · observed, and the factor; fitted, but positive, where it is not known."""
    implied = float(alone.norm() / observed.norm().clamp_min(1e-300)) if factor is None else factor
    return float((alone - implied * observed).norm() / alone.norm().clamp_min(1e-300)), implied


def _labels(seen: Observation) -> list[int]:
    if seen.targets is not None:
        return [] if seen.targets.is_floating_point() else seen.targets.unique().tolist()
    if seen.num_classes <= FEW_CLASSES:
        return list(range(max(2, seen.num_classes)))
    try:
        return infer_labels(seen).labels.unique().tolist()
    except UnsuitableError:
        return list(range(seen.num_classes))


def _valid_rows(seen: Observation, weight: Tensor, bias: Tensor, groups: list[Agreement]) -> list[Agreement]:
    """Rows of no group whose quotient is valid data, the largest bias gradient first."""
    taken = {row for group in groups for row in group.rows.tolist()}
    rows = [row for row in bias.abs().argsort(descending=True).tolist() if row not in taken and float(bias[row]) != 0]
    inputs = {row: to_pixels(seen, (weight[row] / bias[row])[None]) for row in rows}
    valid = [row for row in rows if _is_valid(seen, inputs[row])]
    return [Agreement(torch.tensor([row], device=bias.device), weight[row] / bias[row]) for row in valid]


def _is_valid(seen: Observation, inputs: Tensor) -> bool:
    if seen.bounds is None:
        return True
    low, high = limits_of(seen.bounds, inputs)
    return bool(((inputs > low - _SLACK) & (inputs < high + _SLACK)).all())


def _same(one: Tensor, other: Tensor) -> bool:
    return float((one - other).norm()) <= 10 * torch.finfo(one.dtype).eps ** 0.5 * float(one.norm())
