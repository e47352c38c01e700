"""Whole audits: a configuration in, a directory with journal, numbers and report out."""

from leakscope.audits.bill import Bill, Line
from leakscope.audits.config import Config, Planned, PlannedAttack, json_schema, load_config, parse_config
from leakscope.audits.plan import Plan, make_plan
from leakscope.audits.run import CampaignResult, price_campaign, run_campaign, self_check
from leakscope.audits.specs import AttackCellSpec, CellSpec, SubjectSpec, TrainingCellSpec

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
