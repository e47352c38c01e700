"""What holds for every test: one thread and one seed, so that no result depends on the machine or on test order."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_everywhere():
    torch.set_num_threads(1)
    # A layer built without a seed must have the same weights on every run; 0 is what tests use for truths.
    torch.manual_seed(7919)
