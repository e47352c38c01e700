"""What the columns of a table may hold: a range each, and groups that say one thing out of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from leakscope.errors import BadInputError, UsageError

# A rounding error is not another scale.
_SLACK = 1e-4


@dataclass(frozen=True)
class Columns:
    """The range of every column, and which columns together are one-hot.

    Attributes:
        low: the least value of every column.
        high: the greatest value of every column.
        one_hot: groups of columns of which exactly one is 1 and the others are 0.

    Example:
        >>> person = Columns(low=(18, 0, 0), high=(90, 1, 1), one_hot=((1, 2),))
        >>> person.decode(torch.tensor([[30.0, 0.7, 0.6]])).tolist()
        [[30.0, 1.0, 0.0]]
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    one_hot: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", _numbers(self.low))
        object.__setattr__(self, "high", _numbers(self.high))
        object.__setattr__(self, "one_hot", tuple(tuple(int(place) for place in group) for group in self.one_hot))
        if len(self.low) != len(self.high) or not self.low:
            raise UsageError(f"Columns needs one low and one high a column, got {len(self.low)} and {len(self.high)}")
        wrong = [place for place, (low, high) in enumerate(zip(self.low, self.high, strict=True)) if not low < high]
        if wrong:
            place = wrong[0]
            raise UsageError(
                f"column {place} needs low < high, both finite, got {self.low[place]:g} and {self.high[place]:g}"
            )
        self._check_groups()

    def _check_groups(self) -> None:
        places = [place for group in self.one_hot for place in group]
        if len(set(places)) != len(places) or any(not 0 <= place < len(self.low) for place in places):
            raise UsageError(
                f"one_hot names every column once at most, out of 0…{len(self.low) - 1}, got {list(self.one_hot)}"
            )
        if any(len(group) < 2 for group in self.one_hot):
            raise UsageError(f"a one-hot group needs two columns or more, got {list(self.one_hot)}")
        if any((self.low[place], self.high[place]) != (0.0, 1.0) for place in places):
            raise UsageError("columns of a one-hot group lie between 0 and 1; set low=0 and high=1 for them")

    def limits(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Least and greatest values [columns], on the device and in the dtype of `like`."""
        low, high = (torch.tensor(side, dtype=like.dtype, device=like.device) for side in (self.low, self.high))
        return low, high

    def project(self, rows: Tensor) -> Tensor:
        """The nearest rows [..., columns] inside all ranges whose one-hot groups sum to one."""
        kept = torch.maximum(torch.minimum(rows, self.limits(rows)[1]), self.limits(rows)[0])
        for group in self.one_hot:
            kept[..., list(group)] = _to_simplex(rows[..., list(group)])
        return kept

    def decode(self, rows: Tensor) -> Tensor:
        """Rows that a table could hold: inside all ranges, and the largest of each one-hot group set to 1."""
        kept = self.project(rows)
        for group in self.one_hot:
            values = kept[..., list(group)]
            kept[..., list(group)] = functional.one_hot(values.argmax(-1), len(group)).to(kept)
        return kept

    def check(self, rows: Tensor) -> None:
        """Insist on rows that fit.

        Raises:
            BadInputError: another number of columns, a value outside its range, or a group that is not one-hot.
        """
        if rows.ndim != 2 or rows.shape[1] != len(self.low):
            raise BadInputError(f"bounds were given for {len(self.low)} columns, got inputs of {list(rows.shape)}")
        low, high = self.limits(rows)
        outside = ((rows < low - _SLACK) | (rows > high + _SLACK)).any(0)
        if bool(outside.any()):
            place = int(outside.nonzero()[0])
            least, most = float(rows[:, place].min()), float(rows[:, place].max())
            raise BadInputError(
                f"column {place} must lie in [{self.low[place]:g}, {self.high[place]:g}], got "
                f"[{least:.4g}, {most:.4g}]; widen its bounds, or correct the data"
            )
        for group in self.one_hot:
            values = rows[:, list(group)]
            if not bool((((values - 1).abs() < _SLACK).sum(1) == 1).all() and (values.sum(1) - 1).abs().max() < 1e-3):
                raise BadInputError(
                    f"columns {list(group)} are declared one-hot, but some row does not hold a single 1"
                )


def _numbers(values: Sequence[float] | Tensor) -> tuple[float, ...]:
    return tuple(float(value) for value in (values.tolist() if isinstance(values, Tensor) else values))


def _to_simplex(values: Tensor) -> Tensor:
    """The nearest point with entries ≥ 0 that sum to one (Duchi et al., 2008)."""
    ordered = values.sort(-1, descending=True).values
    above = ordered.cumsum(-1) - 1
    counts = torch.arange(1, values.shape[-1] + 1, dtype=values.dtype, device=values.device)
    kept = (ordered - above / counts > 0).sum(-1, keepdim=True)
    return (values - above.gather(-1, kept - 1) / kept).clamp_min(0)
