"""Whole audits: a configuration in, a directory with journal, numbers and report out.

Names are loaded on first use, so that a wrong configuration is refused without waiting for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leakscope.audits.bill import Bill, Line
    from leakscope.audits.config import Config, Planned, PlannedAttack, json_schema, load_config, parse_config
    from leakscope.audits.plan import Plan, make_plan
    from leakscope.audits.run import CampaignResult, price_campaign, run_campaign, self_check
    from leakscope.audits.specs import AttackCellSpec, CellSpec, SubjectSpec, TrainingCellSpec

_HOMES = {
    **dict.fromkeys(("Bill", "Line"), "bill"),
    **dict.fromkeys(("Config", "Planned", "PlannedAttack", "json_schema", "load_config", "parse_config"), "config"),
    **dict.fromkeys(("Plan", "make_plan"), "plan"),
    **dict.fromkeys(("CampaignResult", "price_campaign", "run_campaign", "self_check"), "run"),
    **dict.fromkeys(("AttackCellSpec", "CellSpec", "SubjectSpec", "TrainingCellSpec"), "specs"),
}

__all__ = [
    "AttackCellSpec",
    "Bill",
    "CampaignResult",
    "CellSpec",
    "Config",
    "Line",
    "Plan",
    "Planned",
    "PlannedAttack",
    "SubjectSpec",
    "TrainingCellSpec",
    "json_schema",
    "load_config",
    "make_plan",
    "parse_config",
    "price_campaign",
    "run_campaign",
    "self_check",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return vars(importlib.import_module(f"leakscope.audits.{_HOMES[name]}"))[name]
    raise AttributeError(f"module 'leakscope.audits' has no attribute {name!r}")
