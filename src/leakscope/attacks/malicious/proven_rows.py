"""Rows of a first linear layer that one example alone opened, each proven by running its quotient through the network.

A row that one example reached is δ(x, 1) with δ = ∂L/∂(row's output) of that example over the size of the batch: the
quotient is x, and x with its label has to give that δ. A mixture of examples gives another one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.attacks.closed.linear.layer_inputs import gradients, to_pixels
from leakscope.matching.replays import scale_known
from leakscope.matching.replays.replay import gradient_factor
from leakscope.networks import run
from leakscope.types import Observation

# Relative error of δ above which a row is taken for a mixture: rounding stays below it, chance rarely meets it.
PROOF = 2e-5
# How far outside their range rounding may carry valid numbers.
_SLACK = 1e-3
# Two quotients nearer than this, relative to their length, are of the same example.
_SAME = 1e-3


@dataclass(frozen=True, eq=False)
class ProvenExamples:
    """Examples [n, …] that stand alone, with their labels; the clearest rows first."""

    inputs: Tensor
    targets: Tensor


def prove_rows(seen: Observation, layer: str) -> ProvenExamples:
    """Examples that alone opened a row of `layer`; none where the size of the batch or the rate is not known."""
    weight, bias = gradients(seen, layer)
    rows = bias.abs().argsort(descending=True)
    rows = rows[bias[rows] != 0]
    inputs = to_pixels(seen, weight[rows] / bias[rows, None])
    valid = _is_valid(seen, inputs)
    rows, inputs = rows[valid], inputs[valid]
    if seen.num_examples is None or not scale_known(seen) or not len(rows):
        return ProvenExamples(inputs[:0], rows[:0])
    observed = bias[rows].double() * float(gradient_factor(seen)) * seen.num_examples
    errors = (_slopes(seen, layer, inputs, rows) / observed[:, None] - 1).abs().nan_to_num(torch.inf)
    least, labels = errors.min(1)
    kept = _distinct(inputs, (least < PROOF).nonzero().flatten().tolist(), limit=seen.num_examples)
    return ProvenExamples(inputs[kept], labels[kept])


def _slopes(seen: Observation, layer: str, inputs: Tensor, rows: Tensor) -> Tensor:
    """∂loss/∂(output of its row) for every candidate alone, and every label: [n, classes]."""
    found: list[Tensor] = []

    def watch(_name: str, output: Tensor) -> None:
        found.append(output)

    with torch.enable_grad():
        scores = seen.task.check_output(run(seen.model, inputs, layers=[layer], after=watch))
        places = torch.arange(len(rows), device=rows.device)
        slopes = []
        for label in range(seen.num_classes):
            # The loss is a mean over examples; each candidate stands alone.
            loss = seen.loss(scores, torch.full_like(rows, label)) * len(rows)
            slopes.append(torch.autograd.grad(loss, found[0], retain_graph=True)[0][places, rows])
    return torch.stack(slopes, 1).double()


def _is_valid(seen: Observation, inputs: Tensor) -> Tensor:
    """Which candidates lie inside the range of valid data, [n]."""
    if not isinstance(seen.bounds, tuple):
        return torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
    low, high = seen.bounds
    return ((inputs > low - _SLACK) & (inputs < high + _SLACK)).flatten(1).all(1)


def _distinct(inputs: Tensor, places: list[int], *, limit: int) -> list[int]:
    """Of candidates that are the same example, the first."""
    kept: list[int] = []
    for place in places:
        gaps = [float((inputs[place] - inputs[other]).norm()) for other in kept]
        if all(gap > _SAME * float(inputs[place].norm()) for gap in gaps) and len(kept) < limit:
            kept.append(place)
    return kept
