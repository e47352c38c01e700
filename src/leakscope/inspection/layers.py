"""Layers of weights as matrices: one row for each output, with its bias."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from leakscope.inspection.parallel import LEAST_ENTRIES, ParallelRows, find_parallel
from leakscope.inspection.row_sizes import RowSizes, measure_rows
from leakscope.types import Tensors


@dataclass(frozen=True, eq=False)
class LayerRows:
    """One layer.

    Attributes:
        name: of its weight tensor.
        rows: what makes each output, [outputs, inputs], float32.
        bias: one number for each output; None where it has none.
        is_convolution: whether a row is a filter.
        least_common: so many weights must two rows have in common to be compared with each other.
    """

    name: str
    rows: Tensor
    bias: Tensor | None
    is_convolution: bool
    least_common: int = 1

    @cached_property
    def lengths(self) -> Tensor:
        """‖row‖ of every row."""
        return torch.linalg.vector_norm(self.rows, dim=1)

    @cached_property
    def sizes(self) -> RowSizes:
        """Sums and counts over every row."""
        return measure_rows(self.rows)

    @cached_property
    def weights(self) -> Tensor:
        """How many weights of every row are not zero."""
        return (self.rows != 0).sum(1).to(self.rows)

    @cached_property
    def parallel(self) -> ParallelRows:
        """Rows that are parallel to another one."""
        return find_parallel(self.rows, least=self.least_common)


def find_rows(tensors: Tensors, model: nn.Module | None = None, *, pruned: bool = False) -> tuple[LayerRows, ...]:
    """All layers that multiply: tensors with two axes or more.

    Where the network is known, what is no parameter and what only looks things up (an embedding) is left out. Where
    pruning was agreed, rows are compared by what it left of them.
    """
    skipped = set() if model is None else _left_out(model)
    common = LEAST_ENTRIES if pruned else 1
    found = []
    for name, value in tensors.items():
        # One row of a matrix makes no layer; one filter does, on grey pictures.
        least = 1 if value.ndim > 3 else 2
        if name in skipped or not value.is_floating_point() or value.ndim < 2 or len(value) < least:
            continue
        rows = value.flatten(1).to(torch.float32)
        found.append(LayerRows(name, rows, _bias(name, tensors, len(rows)), value.ndim > 2, common))
    return tuple(found)


def _bias(name: str, tensors: Tensors, outputs: int) -> Tensor | None:
    # weight → bias, weight_ih_l0 → bias_ih_l0.
    head, _, last = name.rpartition("weight")
    bias = tensors.get(f"{head}bias{last}") if "weight" in name else None
    return bias.to(torch.float32) if bias is not None and bias.shape == (outputs,) else None


def _left_out(model: nn.Module) -> set[str]:
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    lookups = {
        f"{path}.weight" if path else "weight"
        for path, module in model.named_modules()
        if isinstance(module, nn.Embedding)
    }
    return (set(model.state_dict()) - parameters) | lookups
