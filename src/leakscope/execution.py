"""Where cells run: in processes of this machine, on a Ray cluster started for the run, or on one that exists."""

from __future__ import annotations

import importlib.util
import re

from leakscope.errors import MissingExtraError, UsageError, install_line, suggest

PROCESSES = "processes"
RAY = "ray"

WITHOUT_RAY = f"cells run on Ray only where it is installed; install it {install_line('ray')}, or use --on processes"

_CLUSTER = re.compile(r"ray://(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


def check_execution(on: str) -> None:
    """Refuse what names no place where cells can run, and Ray where it is not installed; nothing is imported.

    Example:
        >>> check_execution("processes")
    """
    if on not in (PROCESSES, RAY) and not _CLUSTER.fullmatch(on):
        known = (PROCESSES, RAY, "ray://host:port")
        raise UsageError(f"cells run on {known[0]}, {known[1]} or {known[2]}, got {on[:80]!r}.{suggest(on, known)}")
    if on != PROCESSES and importlib.util.find_spec("ray") is None:
        raise MissingExtraError(WITHOUT_RAY)


def is_elsewhere(on: str) -> bool:
    """Whether cells run on machines of which this one knows neither processors nor memory.

    Example:
        >>> is_elsewhere("ray"), is_elsewhere("ray://head.example:10001")
        (False, True)
    """
    return on not in (PROCESSES, RAY)
