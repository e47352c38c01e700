"""What holds for every test: one thread and one seed, so that no result depends on the machine or on test order."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_everywhere():
    torch.set_num_threads(1)
    # A test that builds a layer without a seed of its own must still see the same weights on every run; not 0, which tests use for truths.
    torch.manual_seed(7919)
