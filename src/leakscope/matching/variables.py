"""What an attack optimises: named tensors with a leading dimension of groups that never mix.

Two names have a meaning for every axis: "inputs" holds image-shaped coordinates, "labels" label logits.
A name that begins with "fixed." is drawn once and never moved.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Variables = dict[str, Tensor]

FIXED = "fixed."


def is_fixed(name: str) -> bool:
    """Whether a variable keeps its starting value."""
    return name.startswith(FIXED)


def stack_groups(groups: Sequence[Variables]) -> Variables:
    """Put the variables of single groups side by side."""
    return {name: torch.stack([group[name] for group in groups]) for name in groups[0]}
