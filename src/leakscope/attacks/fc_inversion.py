"""Fully connected inversion: the input of a linear layer with bias, in closed form.

For z = Wx + b and one example, ∂L/∂W = δ xᵀ and ∂L/∂b = δ: every row of the weight gradient
is the input, times a number that was shared as well. Known since Phong et al. (2017).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from leakscope.attack import Attack, Watch
from leakscope.attacks.closed.linear.isolate import Isolated, isolate
from leakscope.attacks.closed.linear.layer_inputs import first_linear, gradients, layer_inputs, normalise, to_pixels
from leakscope.attacks.closed.linear.rows import least_squares, quotient, rank_one
from leakscope.errors import UnsuitableError
from leakscope.matching.candidates import Pixels
from leakscope.matching.distances import SquaredL2
from leakscope.matching.labels import Inferred, infer_labels
from leakscope.matching.optimisers import Adam
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import AsKnown
from leakscope.types import Observation, Reconstruction, Status, limits_of

__all__ = ["PAPER", "FCInversion", "fc_inversion", "layer_inputs"]

PAPER = "Phong et al.: Privacy-Preserving Deep Learning: Revisited and Enhanced, ATIS 2017"
# Below it the shared numbers of one example may have been rounded, to half precision for instance.
_ONE_EXAMPLE = 0.01
# How the rows of the layer are made one input.
Combine = Literal["best-row", "least-squares", "rank-one"]
_ESTIMATES = {"best-row": quotient, "least-squares": least_squares, "rank-one": rank_one}
# What a defence revises here: only whether there is noise is of use to a closed form.
_STAND_IN = Recipe(labels=Inferred(), candidate=Pixels(), replay=AsKnown(), distance=SquaredL2(), optimiser=Adam())


@dataclass(frozen=True)
class FCInversion(Attack):
    """Reads the input off a linear layer that receives the whole input.

    `combine="best-row"` divides the row with the largest bias gradient; `"least-squares"`
    weighs all rows, Σ δ_i g_i / Σ δ_i²; `"rank-one"` takes the δ and x nearest to the whole layer, the best estimate
    where noise was added.
    For more than one example, those are returned that alone reached two rows or more; where
    there is none, the result is a mixture, and status and notes say so.
    """

    combine: Combine = "best-row"
    name: str = "fc-inversion"
    paper: str = PAPER

    def revised(self, change: Callable[[Recipe], Recipe]) -> FCInversion:
        """Under noise the whole layer is fitted at once; whatever else is known, the best row is read as before.

        The row with the largest δ lost least to pruning: what it lacks, all others lack as well.
        """
        return replace(self, combine="rank-one") if change(_STAND_IN).is_noisy else self

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        """Invert the layer; the loss is the part of its gradient that the result does not explain."""
        layer = first_linear(seen)
        weight, bias = gradients(seen, layer)
        if float(bias.abs().max()) == 0.0:
            return _fail(seen, f"the bias gradient of {layer!r} is zero: nothing to divide by")
        inputs = to_pixels(seen, _ESTIMATES[self.combine](weight, bias)[None])
        if self.combine == "rank-one" and seen.bounds is not None:
            # Where noise carried a value past its bounds, the bound is nearer.
            low, high = (torch.as_tensor(limit).to(inputs) for limit in limits_of(seen.bounds, inputs))
            inputs = inputs.clamp(low, high)
        loss = _misfit(seen, layer, inputs)
        notes = (*seen.notes, f"closed form on {layer!r}")
        if seen.num_examples != 1 and loss > torch.finfo(weight.dtype).eps ** 0.5:
            found = isolate(seen, layer)
            if found:
                return _several(seen, layer, found, notes)
        status, remarks = self._mixture(seen, layer, inputs)
        return Reconstruction(inputs, _label(seen), loss, status, (loss,), None, 1, (*notes, *remarks))

    def _mixture(self, seen: Observation, layer: str, inputs: Tensor) -> tuple[Status, tuple[str, ...]]:
        """One quotient for several examples shows none of them, which does not prove that they are safe."""
        if seen.num_examples == 1:
            return Status.OK, ()
        if seen.num_examples is not None:
            several = f"{seen.num_examples} examples behind one update, none alone in two rows"
            return Status.DIVERGED, (f"{several}: the result is their mixture",)
        # All rows together is how someone who knows of noise reads: then a misfit is expected.
        if self.combine != "best-row" or _disagreement(seen, layer, inputs) < _ONE_EXAMPLE:
            return Status.OK, ()
        return Status.DIVERGED, (
            "no single input explains the layer: several examples, and the result is their mixture, "
            "or the update was changed before sharing",
        )

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """Relative distance of the layer's gradient from what the inputs explain, computed again."""
        return _misfit(seen, first_linear(seen), reconstruction.inputs)


def fc_inversion(*, combine: Combine = "best-row") -> FCInversion:
    """Closed-form inversion of the first linear layer with bias."""
    return FCInversion(combine=combine)


def _several(seen: Observation, layer: str, found: list[Isolated], notes: tuple[str, ...]) -> Reconstruction:
    inputs = torch.cat([one.inputs for one in found])
    loss = _misfit(seen, layer, inputs)
    rows = ", ".join(str(one.rows) for one in found)
    total = seen.num_examples or "an unknown number of"
    labels = [one.target for one in found if one.target is not None]
    targets = torch.tensor(labels, device=inputs.device) if len(labels) == len(found) else None
    remark = f"{len(found)} of {total} examples isolated, by {rows} rows that agree"
    return Reconstruction(inputs, targets, loss, Status.OK, (loss,), None, len(found), (*notes, remark))


def _misfit(seen: Observation, layer: str, inputs: Tensor) -> float:
    """What the inputs leave unexplained of the layer's gradient, relative to its norm.

    For one input ‖G_W − g_b xᵀ‖/‖G_W‖. For several, the best coefficients Δ in [G_W, g_b] ≈ Δ [X, 1].
    """
    weight, bias = gradients(seen, layer)
    received = normalise(seen, inputs).flatten(1)
    if len(inputs) == 1:
        gap = weight - torch.outer(bias, received[0])
        return float(gap.norm() / weight.norm().clamp_min(1e-30))
    rows = torch.cat([weight, bias[:, None]], 1).double()
    basis = torch.cat([received, received.new_ones(len(received), 1)], 1).double()
    span = torch.linalg.qr(basis.T).Q
    return float((rows - rows @ span @ span.T).norm() / rows.norm().clamp_min(1e-30))


def _label(seen: Observation) -> Tensor | None:
    if seen.targets is not None:
        return seen.targets[:1]
    try:
        return infer_labels(seen, count=1).labels
    except UnsuitableError:
        return None


def _disagreement(seen: Observation, layer: str, inputs: Tensor) -> float:
    """What one input leaves unexplained of the entries that were not zeroed before sharing, relative to their norm."""
    weight, bias = gradients(seen, layer)
    left = (weight != 0) & (bias != 0)[:, None]
    gap = (weight - torch.outer(bias, normalise(seen, inputs).flatten(1)[0])) * left
    return float(gap.norm() / (weight * left).norm().clamp_min(1e-30))


def _fail(seen: Observation, reason: str) -> Reconstruction:
    like = torch.zeros((1, *seen.input_shape), device=seen.device, dtype=seen.dtype)
    low, high = limits_of(seen.bounds, like)
    grey = like + (low + high) / 2
    return Reconstruction(grey, None, float("nan"), Status.DIVERGED, notes=(*seen.notes, reason))
