"""The range of the user's own inputs: what an option says, what a file holds, and both together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from leakscope.errors import UsageError
from leakscope.input_values import read_ranges
from leakscope.one_hot import Groups, merge_groups, parse_one_hot
from leakscope.tasks import Columns
from leakscope.types import Bounds

UNIT = (0.0, 1.0)


def parse_bounds(text: str) -> Bounds | None:
    """The range that an option names: "none" for data without one, "low,high", or "low,high;low,high" by column.

    Example:
        >>> parse_bounds("-1,1")
        (-1.0, 1.0)
    """
    pairs = read_ranges(text)
    if pairs is None or len(pairs) == 1:
        return None if pairs is None else pairs[0]
    return Columns(tuple(low for low, _high in pairs), tuple(high for _low, high in pairs))


@dataclass(frozen=True)
class DeclaredRange:
    """What the user says of the inputs: `bounds` and `one_hot` as the options have them."""

    bounds: str | None = None
    one_hot: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether anything is said."""
        return self.bounds is not None or self.one_hot is not None

    def settle(self, shape: tuple[int, ...], *, held: Columns | None = None, groups: Groups = ()) -> Bounds | None:
        """The range of inputs of one `shape`; `held` and `groups` are what the data say themselves.

        An option for the range takes the place of what the data say; one-hot groups of both count.
        """
        base = (held or UNIT) if self.bounds is None else parse_bounds(self.bounds)
        named = merge_groups(parse_one_hot(self.one_hot), groups)
        if not named:
            return base
        if len(shape) != 1:
            raise UsageError(
                f"--one-hot names columns of a table, and inputs have the shape {list(shape)}, so it has no effect; "
                "drop it"
            )
        if base is None:
            raise UsageError(
                "columns that are one-hot lie between 0 and 1, and --bounds none lifts every range; give --bounds "
                "low,high, or a range for each column"
            )
        return replace(self._by_column(base, shape[0], named), one_hot=named)

    def of_unseen(self, shape: tuple[int, ...]) -> Bounds | None:
        """As `settle`, of inputs that are not at hand to be checked."""
        found = self.settle(shape)
        if isinstance(found, Columns) and shape != (len(found.low),):
            raise UsageError(
                f"--bounds names {len(found.low)} columns, and one input has the shape {list(shape)}; give as many"
            )
        return found

    @staticmethod
    def _by_column(base: Bounds, width: int, named: Groups) -> Columns:
        if isinstance(base, Columns):
            return base
        marked = {place for group in named for place in group}
        # One range for all is not meant for columns that are 0 or 1.
        pairs = [UNIT if place in marked else base for place in range(width)]
        return Columns(tuple(low for low, _high in pairs), tuple(high for _low, high in pairs))
