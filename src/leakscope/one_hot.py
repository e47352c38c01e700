"""Which columns of a table are one-hot, as an option or a setting says it."""

from __future__ import annotations

import re

from leakscope.errors import UsageError

Groups = tuple[tuple[int, ...], ...]
_RANGE = re.compile(r"\s*(\d{1,6})\s*-\s*(\d{1,6})\s*")


def parse_one_hot(text: str | None) -> Groups:
    """Groups of columns, counted from 0, each as first-last; none of None.

    Example:
        >>> parse_one_hot("2-4,6-7")
        ((2, 3, 4), (6, 7))
    """
    if text is None:
        return ()
    found = [_RANGE.fullmatch(part) for part in text.split(",")]
    ranges = [(int(one[1]), int(one[2])) for one in found if one is not None]
    if len(ranges) < len(found) or any(first >= last for first, last in ranges):
        raise UsageError(
            "--one-hot must name groups of columns, counted from 0, as first-last, as in '2-5,6-8', got "
            f"{text[:80]!r}; a group has two columns or more"
        )
    groups = tuple(tuple(range(first, last + 1)) for first, last in ranges)
    return merge_groups(groups)


def merge_groups(*several: Groups) -> Groups:
    """All groups once, in the order of their columns.

    Raises:
        UsageError: two different groups share a column.
    """
    groups = tuple(sorted({group for groups in several for group in groups}))
    places = [place for group in groups for place in group]
    twice = sorted({place for place in places if places.count(place) > 1}) if len(set(places)) < len(places) else []
    if twice:
        raise UsageError(
            f"column {twice[0]} is in two one-hot groups; name each column once, and as the file does where it says "
            "which columns are one-hot"
        )
    return groups
