"""One self-contained HTML page that a manager and an engineer can both read."""

from __future__ import annotations

from leakscope.report.grades import grade_example
from leakscope.report.render import render, write_report
from leakscope.report.schema import CellRecord, DefenceCost, SelfCheck, Summary, Verdict, parse_summary
from leakscope.report.verdict import gate, verdict

__all__ = [
    "CellRecord",
    "DefenceCost",
    "SelfCheck",
    "Summary",
    "Verdict",
    "gate",
    "grade_example",
    "parse_summary",
    "render",
    "verdict",
    "write_report",
]
