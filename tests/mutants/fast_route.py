"""Wrong formulas of the fast route: what it keeps alive, when it is trusted, its rules, statistics from buffers."""

from __future__ import annotations

from mutants.mutant import Mutant

_MEMORY = ("matching/test_memory.py",)

MUTANTS = (
    Mutant(
        "scratch memory keyed by the layer that holds it",
        "fastgrad/winograd.py",
        "self._scratch.take(self._place,",
        "self._scratch.take(self,",
        _MEMORY,
    ),
    Mutant(
        "a tracer that keeps its network",
        "networks/chain.py",
        "tracer.root, tracer.tensor_attrs, tracer.submodule_paths = nn.Module(), {}, None",
        "pass",
        _MEMORY,
    ),
)
