"""leakscope: what shared gradients and model updates give away, and what it costs to stop it.

Names are loaded on first use, so that `leakscope --help` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from leakscope.version import __version__

if TYPE_CHECKING:
    from leakscope import data, defences, federated, metrics, models, tasks, testing
    from leakscope.audits import run_campaign
    from leakscope.audits.audit import audit
    from leakscope.audits.profile import leakage_profile
    from leakscope.client import share
    from leakscope.errors import LeakscopeError
    from leakscope.explanation import Diagnosis, diagnose
    from leakscope.files import load_update, save_update
    from leakscope.inspection import Finding, inspect
    from leakscope.matching.labels import infer_labels
    from leakscope.metrics import score
    from leakscope.observation.observe import observe
    from leakscope.observation.restrict import restrict
    from leakscope.registry import get_attack, get_defence
    from leakscope.types import (
        AuditResult,
        Batch,
        Fit,
        Knowledge,
        LocalTraining,
        Observation,
        Reconstruction,
        Scores,
        SealedUpdate,
        SharedUpdate,
        Status,
    )

_PACKAGES = ("data", "defences", "federated", "metrics", "models", "tasks", "testing")
_HOMES = {
    "run_campaign": "audits",
    "share": "client",
    "LeakscopeError": "errors",
    **dict.fromkeys(("Diagnosis", "diagnose"), "explanation"),
    "load_update": "files",
    "save_update": "files",
    **dict.fromkeys(("Finding", "inspect"), "inspection"),
    "infer_labels": "matching.labels.rules",
    "score": "metrics",
    "restrict": "observation",
    "leakage_profile": "audits.profile",
    "audit": "audits.audit",
    "get_attack": "registry",
    "get_defence": "registry",
    **dict.fromkeys(("AuditResult", "Fit", "Scores", "Status"), "results"),
    "observe": "observation",
    **dict.fromkeys(
        ("Batch", "Knowledge", "LocalTraining", "Observation", "Reconstruction", "SealedUpdate", "SharedUpdate"),
        "types",
    ),
}

__all__ = [
    "AuditResult",
    "Batch",
    "Diagnosis",
    "Finding",
    "Fit",
    "Knowledge",
    "LeakscopeError",
    "LocalTraining",
    "Observation",
    "Reconstruction",
    "Scores",
    "SealedUpdate",
    "SharedUpdate",
    "Status",
    "__version__",
    "audit",
    "data",
    "defences",
    "diagnose",
    "federated",
    "get_attack",
    "get_defence",
    "infer_labels",
    "inspect",
    "leakage_profile",
    "load_update",
    "metrics",
    "models",
    "observe",
    "restrict",
    "run_campaign",
    "save_update",
    "score",
    "share",
    "tasks",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"leakscope.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"leakscope.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'leakscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
