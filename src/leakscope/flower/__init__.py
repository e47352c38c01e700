"""leakscope inside Flower: defences, a gate and an inspection as client mods, a strategy that captures and audits.

The public name of this package is `leakscope.federated.flower`. Only its modules import Flower, which is an extra:
`pip install -c constraints.txt -e '.[flower]'` in leakscope's clone.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from leakscope.errors import MissingExtraError, install_line

# Read by Flower and Ray when they are imported. Who has set them keeps what was chosen.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

try:
    # Here, so that the modules of this package, and no others, may take Flower for granted.
    importlib.import_module("flwr")
except ImportError as error:
    raise MissingExtraError(f"Flower is not installed; install it {install_line('flower')}") from error

if TYPE_CHECKING:
    from leakscope.flower.boosting import BoostingStrategy
    from leakscope.flower.capture import Capture, partition_mod
    from leakscope.flower.checking import CheckedStrategy
    from leakscope.flower.client_side import client_app
    from leakscope.flower.defending import defence_mod
    from leakscope.flower.gating import gate_mod
    from leakscope.flower.inspecting import inspection_mod
    from leakscope.flower.own_training import OwnTraining, initial_arrays
    from leakscope.flower.round_audit import RoundAudit
    from leakscope.flower.sealed_records import open_arrays
    from leakscope.flower.sealed_strategy import SealedStrategy
    from leakscope.flower.sealing import seal_mod
    from leakscope.flower.server_side import ExperimentStrategy
    from leakscope.flower.simulation import apps, simulate, simulate_apps

_HOMES = {
    "BoostingStrategy": "boosting",
    "CheckedStrategy": "checking",
    "apps": "simulation",
    "simulate": "simulation",
    "simulate_apps": "simulation",
    "client_app": "client_side",
    "ExperimentStrategy": "server_side",
    "Capture": "capture",
    "OwnTraining": "own_training",
    "RoundAudit": "round_audit",
    "defence_mod": "defending",
    "gate_mod": "gating",
    "initial_arrays": "own_training",
    "inspection_mod": "inspecting",
    "open_arrays": "sealed_records",
    "partition_mod": "capture",
    "seal_mod": "sealing",
    "SealedStrategy": "sealed_strategy",
}

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
    if name in _HOMES:
        return getattr(importlib.import_module(f"leakscope.flower.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'leakscope.flower' has no attribute {name!r}")
