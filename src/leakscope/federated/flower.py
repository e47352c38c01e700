"""leakscope inside Flower, under its public name: what is here is written in `leakscope.flower`.

The pieces attack and score updates, so they are above the audits in the import order, and this module only says where:
names are looked up when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leakscope.flower import (
        BoostingStrategy,
        Capture,
        CheckedStrategy,
        ExperimentStrategy,
        OwnTraining,
        RoundAudit,
        SealedStrategy,
        apps,
        client_app,
        defence_mod,
        gate_mod,
        initial_arrays,
        inspection_mod,
        open_arrays,
        partition_mod,
        seal_mod,
        simulate,
        simulate_apps,
    )

__all__ = [
    "BoostingStrategy",
    "Capture",
    "CheckedStrategy",
    "ExperimentStrategy",
    "OwnTraining",
    "RoundAudit",
    "SealedStrategy",
    "apps",
    "client_app",
    "defence_mod",
    "gate_mod",
    "initial_arrays",
    "inspection_mod",
    "open_arrays",
    "partition_mod",
    "seal_mod",
    "simulate",
    "simulate_apps",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("leakscope.flower"), name)
    raise AttributeError(f"module 'leakscope.federated.flower' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
