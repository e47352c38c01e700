"""Arithmetic on name → Tensor maps. Every function keeps the names and their order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.types import Tensors


def map_tensors(function: Callable[[Tensor], Tensor], tensors: Tensors) -> dict[str, Tensor]:
    """Apply `function` to each tensor."""
    return {name: function(value) for name, value in tensors.items()}


def zip_tensors(function: Callable[[Tensor, Tensor], Tensor], left: Tensors, right: Tensors) -> dict[str, Tensor]:
    """Apply `function` to tensors of the same name; both maps must hold the same names."""
    if left.keys() != right.keys():
        odd = sorted(set(left) ^ set(right))
        raise BadInputError(f"tensor names differ: {', '.join(odd[:5])} on one side only")
    return {name: function(value, right[name]) for name, value in left.items()}


def subtract(left: Tensors, right: Tensors) -> dict[str, Tensor]:
    """Return left − right by name."""
    return zip_tensors(torch.sub, left, right)


def scale(tensors: Tensors, factor: float) -> dict[str, Tensor]:
    """Return factor · tensors."""
    return map_tensors(lambda value: value * factor, tensors)


def dot(left: Tensors, right: Tensors) -> Tensor:
    """Inner product over all tensors."""
    products = zip_tensors(lambda a, b: torch.dot(a.reshape(-1), b.reshape(-1)), left, right)
    return torch.stack(list(products.values())).sum()


def global_norm(tensors: Tensors) -> Tensor:
    """Euclidean norm of all tensors taken as one vector."""
    return torch.stack([torch.linalg.vector_norm(value) for value in tensors.values()]).norm()


def all_finite(tensors: Tensors) -> bool:
    """Whether no tensor holds NaN or Inf."""
    return all(bool(torch.isfinite(value).all()) for value in tensors.values())


def detach(tensors: Tensors) -> dict[str, Tensor]:
    """Detached clones: later changes of the source do not reach them."""
    return map_tensors(lambda value: value.detach().clone(), tensors)


def hash_tensors(tensors: Tensors) -> str:
    """Hash of names, dtypes, shapes and bytes; the order of the names does not matter."""
    found = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        found.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
