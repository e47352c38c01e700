"""One self-contained HTML page that a manager and an engineer can both read."""

from __future__ import annotations

from leakscope.report.grade import grade_example, verdict
from leakscope.report.render import render
from leakscope.report.write import write_report

__all__ = ["grade_example", "render", "verdict", "write_report"]
