"""Which policies a search looks at: three slots each, drawn at random, written in one form."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from leakscope.counts import check_count
from leakscope.operations.library import IDENTITY, NUMBER_OF_OPERATIONS
from leakscope.operations.policy import Policy
from leakscope.rng import generator

SLOTS = 3
EMPTY = -1
MOST_CANDIDATES = 1_000_000


def draw_candidates(count: int, *, seed: int = 0) -> list[Policy]:
    """The different policies among `count` drawn ones, in the order of drawing; with more, the first ones stay.

    Every slot is one of 50 operations or empty, with equal chances. Equal policies are scored once.
    """
    check_count(count, "candidates", most=MOST_CANDIDATES)
    draw = generator(seed, "search", "candidates")
    drawn = torch.randint(EMPTY, NUMBER_OF_OPERATIONS, (count, SLOTS), generator=draw)
    return list(dict.fromkeys(policy_of(row) for row in drawn.tolist()))


def policy_of(slots: Sequence[int]) -> Policy:
    """The policy in its one form; −1 is an empty slot, and nothing but empty slots the identity."""
    filled = tuple(number for number in slots if number != EMPTY)
    return Policy((filled or (IDENTITY,),)).canonical()
