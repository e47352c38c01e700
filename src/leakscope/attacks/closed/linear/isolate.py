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
from leakscope.types import Observation, Tensors

# Relative error of the replayed bias gradient above which rows agreed by chance.
PROOF = 1e-3
# With so few classes all are tried; beyond, those that the last layer shows.
FEW_CLASSES = 20
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


def isolate(seen: Observation, layer: str) -> list[Isolated]:
    """Examples that alone reached two rows or more, most rows first; at most as many as are behind the update."""
    weight, bias = gradients(seen, layer)
    limit = seen.num_examples or len(bias)
    prover = _Prover.of(seen, layer)
    factor = prover.factor()
    found: list[Isolated] = []
    for one in agreements(weight, bias)[: 8 * limit]:
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
        return Isolated(inputs, label, len(one.rows), implied) if error <= PROOF else None

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


def _same(one: Tensor, other: Tensor) -> bool:
    return float((one - other).norm()) <= 10 * torch.finfo(one.dtype).eps ** 0.5 * float(one.norm())
