"""Which tensor names are let in: they end up in messages, reports and file names."""

from __future__ import annotations

import re
import unicodedata

MAX_NAME = 512
# "w:0" is how TensorFlow names the first output of w, not a drive.
_DRIVE = re.compile(r"[A-Za-z]:(?!\d+$)")
_SEPARATOR = re.compile(r"[/\\]")


def name_problem(name: str) -> str | None:
    """Say why `name` cannot name a tensor, or return None when it can.

    Example:
        >>> name_problem("layer1.0.conv.weight") is None
        True
        >>> name_problem("../weights")
        "has the path segment '..'"
    """
    if not name:
        return "is empty"
    if len(name) > MAX_NAME:
        return f"is {len(name)} characters long, at most {MAX_NAME} are allowed"
    # Category C: control, format (bidirectional overrides), surrogate, unassigned.
    odd = [char for char in name if unicodedata.category(char).startswith("C")]
    if odd:
        return f"holds the unprintable character U+{ord(odd[0]):04X}"
    if name[0] in "/\\" or _DRIVE.match(name):
        return "is an absolute path"
    if ".." in _SEPARATOR.split(name):
        return "has the path segment '..'"
    return "is reserved" if name == "__metadata__" else None
