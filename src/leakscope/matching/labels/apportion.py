"""Whole numbers near to expected ones, with a given sum; the time does not depend on that sum."""

from __future__ import annotations

import torch
from torch import Tensor

# So few are dealt one by one: finding a common level costs as much.
_FEW = 64
_HALVINGS = 100


def apportion(expected: Tensor, count: int, *, least: Tensor) -> Tensor:
    """Whole numbers ≥ `least` nearest to `expected` that sum to `count`."""
    wanted = expected.double().nan_to_num(0.0).clamp(-count, 2 * count)
    least = least.double()
    whole = torch.maximum(wanted.round(), least).clamp_min(0)
    missing = count - int(whole.sum())
    if missing > 0:
        whole = whole + _deal(wanted - whole, missing, room=torch.full_like(whole, torch.inf))
    elif missing < 0:
        whole = whole - _deal(whole - wanted, -missing, room=whole - least)
    return whole.to(expected.dtype)


def _deal(gaps: Tensor, amount: int, *, room: Tensor) -> Tensor:
    """Units for each class: `amount` in all, each to the class whose gap is then the widest, at most `room` a class.

    A unit narrows the gap of its class by 1, so in the end all gaps lie within 1 of a common level. That level is found
    by halving, and less than one unit for each class is left to be dealt one by one.
    """
    units = torch.zeros_like(gaps)
    if amount > _FEW:
        low, high = float(gaps.min()) - amount, float(gaps.max()) + 1
        for _ in range(_HALVINGS):
            level = (low + high) / 2
            low, high = (low, level) if float(_above(gaps, level, room).sum()) <= amount else (level, high)
        units = _above(gaps, high, room)
    for _ in range(amount - int(units.sum())):
        left = torch.where(units < room, gaps - units, -torch.inf)
        units[left.argmax()] += 1
    return units


def _above(gaps: Tensor, level: float, room: Tensor) -> Tensor:
    """Units that bring every gap below `level`."""
    return torch.minimum(((gaps - level).floor() + 1).clamp_min(0), room)
