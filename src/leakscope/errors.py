"""Every error a caller can provoke, each with one exit code.

A message names what was expected, what came, and what to do. Anything else that escapes
leakscope is a bug of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LeakscopeError(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the command line returns."""

    exit_code = 2


class UsageError(LeakscopeError, ValueError):
    """A value that cannot work: wrong name, wrong range, wrong combination."""


class BadInputError(LeakscopeError, ValueError):
    """A file, tensor or model that does not fit what was declared."""

    exit_code = 4


class KnowledgeError(LeakscopeError):
    """An attack needs knowledge that the scenario does not grant."""


class UnsuitableError(LeakscopeError, ValueError):
    """An attack or defence that cannot work on this network or update; nothing was computed."""


class MissingDataError(LeakscopeError, FileNotFoundError):
    """A data set is not on this machine; the message lists the ways to get it."""


class MissingExtraError(LeakscopeError, ImportError):
    """An optional dependency is absent; the message is the line that installs it."""


class InconclusiveError(LeakscopeError):
    """The measurement cannot be trusted: the self-check failed or attacks diverged."""

    exit_code = 3


class CiphertextError(BadInputError):
    """A sealed update that is refused: `client` says whose it is, `reason` why in one word or two.

    Reasons: "truncated", "malformed", "foreign key", "wrong round", "replayed", "not authentic", "out of range".
    """

    def __init__(self, message: str, *, client: str, reason: str) -> None:
        super().__init__(message)
        self.client, self.reason = client, reason


class RoundFailedError(InconclusiveError):
    """Too few clients completed a round of federated training; the rounds before it stay as they were."""


class StorageError(LeakscopeError, OSError):
    """Results could not be written; what was finished before stays finished."""


def install_line(*extras: str) -> str:
    """How extras are installed: from a clone, since the package index has another project under leakscope's name."""
    return f"in leakscope's clone: pip install -c constraints.txt -e '.[{','.join(extras)}]'"


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean …?' for the nearest known name, or the list when none is near."""
    options = sorted(known)
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" Known: {', '.join(options)}."
