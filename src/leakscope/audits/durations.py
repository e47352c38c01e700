"""Lengths of time as people write them: 90, 90s, 2m, 1h30m."""

from __future__ import annotations

import math
import re

from leakscope.errors import UsageError

# Of what nobody knows the price of. The longest cells of published settings take hours, none takes half a day.
TIMEOUT_SECONDS = 12 * 3600.0
_PARTS = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def parse_duration(value: object) -> float:
    """Seconds of a length of time.

    Example:
        >>> parse_duration("1h30m"), parse_duration("90s"), parse_duration(90)
        (5400.0, 90.0, 90.0)
    """
    seconds = math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and (found := _PARTS.fullmatch(value.strip().lower())) and any(found.groups()):
        hours, minutes, rest = (float(part or 0) for part in found.groups())
        seconds = 3600 * hours + 60 * minutes + rest
    if not (math.isfinite(seconds) and seconds > 0):
        raise UsageError(f"expected a length of time above 0 such as 90s, 2m or 1h30m, got {value!r}")
    return seconds


def parse_time_limit(value: object) -> float:
    """Seconds of a length of time; 0, or the word none, is no limit."""
    return 0.0 if is_no_limit(value) or (value == 0 and not isinstance(value, bool)) else parse_duration(value)


def is_no_limit(value: object) -> bool:
    """Whether a word switches a limit off."""
    return isinstance(value, str) and value.strip().lower() in ("none", "0")


def duration(seconds: float) -> str:
    """A length of time for people, with two figures that matter.

    Example:
        >>> duration(0.042), duration(75), duration(5400)
        ('0.042 s', '1 min 15 s', '1 h 30 min')
    """
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60:,} h"
