"""What every label rule returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LabelGuess:
    """Inferred labels [n], sorted, each with a confidence in [0, 1]."""

    labels: Tensor
    confidence: Tensor
    rule: str
    notes: tuple[str, ...] = ()
