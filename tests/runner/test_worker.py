from __future__ import annotations

import pytest

from leakscope.errors import BadInputError, KnowledgeError, UnsuitableError
from leakscope.runner.worker import failure_of
from leakscope.types import Status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KnowledgeError("needs labels"), Status.REFUSED),
        (UnsuitableError("no linear layer"), Status.REFUSED),
        (BadInputError("NaN"), Status.ERROR),
        (ZeroDivisionError("x"), Status.ERROR),
    ],
)
def test_a_refusal_is_told_from_a_failure(error, status):
    outcome = failure_of(error)
    assert outcome.status is status
    assert outcome.record["message"] == str(error)
