from __future__ import annotations

import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord

from flower_messages import training_message
from leakscope.flower import records


def test_the_end_of_a_long_trace_is_told_in_one_line():
    trace = "\x1b[36mTraceback\n" + "  somewhere\n" * 200 + "MemoryError: no memory left\n"
    reply = records.refuse(training_message(ArrayRecord()), trace)
    told = records.tell_error(reply)
    assert told.endswith("MemoryError: no memory left")
    assert told.isprintable()
    assert len(told) < 160
