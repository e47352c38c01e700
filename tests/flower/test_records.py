from __future__ import annotations

import pytest

pytest.importorskip("flwr")

from flwr.app import Message, RecordDict

from leakscope.flower import records


def test_the_end_of_a_long_trace_is_told_in_one_line():
    trace = "\x1b[36mTraceback\n" + "  somewhere\n" * 200 + "MemoryError: no memory left\n"
    reply = records.refuse(Message(RecordDict(), dst_node_id=1, message_type="train"), trace)
    told = records.tell_error(reply)
    assert told.endswith("MemoryError: no memory left")
    assert told.isprintable()
    assert len(told) < 160
