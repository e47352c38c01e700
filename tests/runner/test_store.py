"""Cell files hold an outcome exactly, and the same outcome gives the same bytes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import sweep_workloads as workloads
import torch

from leakscope.errors import BadInputError, UsageError
from leakscope.runner import CellOutcome
from leakscope.runner.store import pack, unpack
from leakscope.types import Status

CELL = workloads.cell(seed=1)
VALUES = torch.arange(12.0).reshape(3, 4)
OUTCOME = CellOutcome(
    Status.DIVERGED,
    {"loss": float("inf"), "worst": float("nan"), "name": "Müller", "psnr": [1.0, 1e-300], "none": None},
    {
        "view": VALUES[1],
        "turned": VALUES.T,
        "whole": VALUES,
        "bits": torch.tensor([True, False]),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "empty": torch.zeros(0, 3),
    },
)


def test_outcomes_come_back_exactly() -> None:
    cell, found = unpack(pack(CELL, OUTCOME), source="x")
    assert (cell, cell.spec, found.status) == (CELL, CELL.spec, Status.DIVERGED)
    assert math.isnan(found.record.pop("worst"))
    assert found.record == {name: value for name, value in OUTCOME.record.items() if name != "worst"}
    assert found.tensors.keys() == OUTCOME.tensors.keys()
    for name, tensor in OUTCOME.tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)


def test_bytes_do_not_depend_on_order_timings_or_label() -> None:
    turned = CellOutcome(
        OUTCOME.status,
        dict(reversed(OUTCOME.record.items())),
        dict(reversed(OUTCOME.tensors.items())),
        seconds=9.0,
        peak_mb=3.0,
    )
    assert pack(replace(CELL, label="other"), turned) == pack(CELL, OUTCOME)


def test_a_record_that_is_no_json_is_refused() -> None:
    with pytest.raises(UsageError, match="plain JSON"):
        pack(CELL, CellOutcome(Status.OK, {"x": torch.ones(1)}))


def test_damage_is_one_typed_error() -> None:
    data = pack(CELL, OUTCOME)
    for end in range(0, len(data), 7):
        with pytest.raises(BadInputError, match="some/file is not a cell file"):
            unpack(data[:end], source="some/file")
