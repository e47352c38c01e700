"""Updates that cover only some layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from leakscope.errors import UsageError, suggest
from leakscope.types import SharedUpdate


def restrict(update: SharedUpdate, names: str | Iterable[str]) -> SharedUpdate:
    """The update as if only the tensors that match `names` had been shared.

    A name is a tensor's, a layer's (all its tensors), or a pattern with `*`.

    Example:
        >>> restrict(update, ["conv1", "*.bias"]).tensors.keys()          # doctest: +SKIP
    """
    wanted = [names] if isinstance(names, str) else list(names)
    kept: set[str] = set()
    for pattern in wanted:
        found = {name for name in update.tensors if _matches(name, pattern)}
        if not found:
            raise UsageError(f"no shared tensor matches {pattern!r}.{suggest(pattern, layers(update))}")
        kept |= found
    return replace(update, tensors={name: value for name, value in update.tensors.items() if name in kept})


def layers(update: SharedUpdate) -> dict[str, tuple[str, ...]]:
    """Names of the shared tensors by layer, in the model's order: weight and bias belong together."""
    found: dict[str, list[str]] = {}
    for name in update.tensors:
        found.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return {layer: tuple(names) for layer, names in found.items()}


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)
