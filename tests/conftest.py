"""What holds for every test: one thread and one seed, so that no result depends on the machine or on test order."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest
import torch

from inline_workers import InlinePool
from leakscope.runner.process_workers import ProcessPool

# By its name: the package's attribute of that name is the function.
_RUN = import_module("leakscope.runner.run")


@pytest.fixture(autouse=True)
def _same_everywhere():
    torch.set_num_threads(1)
    # A layer built without a seed must have the same weights on every run; 0 is what tests use for truths.
    torch.manual_seed(7919)


@pytest.fixture(scope="module")
def inline_workers() -> Iterator[None]:
    """Cells of all audits of a file run in the test's own process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_RUN, "ProcessPool", InlinePool)
        yield


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real workers for one test of such a file."""
    monkeypatch.setattr(_RUN, "ProcessPool", ProcessPool)
