"""What a summary says of the accuracy that a defence costs."""

from __future__ import annotations

import pytest

from leakscope.audits.summary import drop_interval
from leakscope.report.schema import TrainingFindings


def test_accuracy_lost_is_positive_where_a_defence_costs_some():
    base = TrainingFindings(accuracy=0.9, ci=(0.85, 0.93))
    found = TrainingFindings(accuracy=0.7, ci=(0.62, 0.76))
    # d = 0.2; √(0.05² + 0.06²) below, √(0.03² + 0.08²) above.
    assert drop_interval(found, base) == pytest.approx((0.2 - 0.0781, 0.2 + 0.0854), abs=1e-4)
