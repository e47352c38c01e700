"""Shares of memory, signs of exhaustion, time left."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from leakscope.errors import UsageError
from leakscope.runner.dispatch import TimeLeft
from leakscope.runner.limits import Limits, is_exhaustion


def test_workers_share_memory_and_one_alone_gets_all() -> None:
    limits = Limits(workers=4, memory_mb=2000)
    assert limits.share_mb(alone=False) == 500
    assert limits.share_mb(alone=True) == 2000
    assert Limits().share_mb(alone=True) is None


def test_a_share_a_worker_fills_itself_is_refused() -> None:
    with pytest.raises(UsageError, match=r"each of 2 workers 150 MB, but a worker alone needs 220 MB; allow 506 MB"):
        Limits(workers=2, memory_mb=300).check_share(220.0)
    Limits(workers=2, memory_mb=506).check_share(220.0)
    Limits(workers=2).check_share(220.0)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_exhaustion_is_told_from_other_errors(error: Exception, expected: bool) -> None:
    assert is_exhaustion(error) is expected


ALLOCATES = """
from leakscope.runner import limits
limits.reset_peak()
before = limits.peak_mb()
block = b"x" * (64 << 20)
print(limits.peak_mb() - before)
"""


def test_peak_memory_sees_an_allocation() -> None:
    # In a process of its own: here the garbage of earlier tests may go while the block comes.
    grown = subprocess.run([sys.executable, "-c", ALLOCATES], capture_output=True, text=True, check=True).stdout
    assert float(grown) > 0.9 * 64


def test_time_left_is_unknown_before_the_first_cell() -> None:
    assert TimeLeft(2).estimate(1, []) is None


def test_time_left_counts_workers_and_what_is_done_of_running_cells() -> None:
    left = TimeLeft(2)
    left.add(10.0)
    # Two cells to come, 4 of the 10 seconds of the running one done; two workers.
    assert left.estimate(2, [4.0]) == pytest.approx((10 + 10 + 6) / 2)


def test_time_left_is_never_less_than_the_longest_running_cell() -> None:
    left = TimeLeft(8)
    left.add(10.0)
    assert left.estimate(0, [1.0, 9.5]) == pytest.approx(9.0)
    assert left.estimate(0, [99.0]) == 0


def test_newer_cells_count_more() -> None:
    left = TimeLeft(1)
    for seconds in [1.0] * 20 + [9.0] * 20:
        left.add(seconds)
    found = left.estimate(1, [])
    assert found is not None
    assert 8.5 < found < 9.0
