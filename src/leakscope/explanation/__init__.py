"""What explains an update: how much a result accounts for, and which description accounts for it better."""

from __future__ import annotations

from leakscope.explanation.assess import measure_fit, settle_with_truth
from leakscope.explanation.diagnosis import Diagnosis, diagnose
from leakscope.explanation.fit import MatchedPart, explained_by
from leakscope.explanation.unrelated import unrelated_inputs
from leakscope.explanation.verdict import is_unfinished, judge_with_truth, settle_status

__all__ = [
    "Diagnosis",
    "MatchedPart",
    "diagnose",
    "explained_by",
    "is_unfinished",
    "judge_with_truth",
    "measure_fit",
    "settle_status",
    "settle_with_truth",
    "unrelated_inputs",
]
