"""Whole audits: a configuration in, a directory with journal, numbers and report out."""

from leakscope.campaign.config import Config, Planned, PlannedAttack, json_schema, load_config, parse_config
from leakscope.campaign.estimate import Bill, Line, price_campaign
from leakscope.campaign.plan import Plan, make_plan
from leakscope.campaign.run import CampaignResult, run_campaign
from leakscope.campaign.selfcheck import self_check
from leakscope.campaign.specs import AttackCellSpec, CellSpec, SubjectSpec, TrainingCellSpec

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
