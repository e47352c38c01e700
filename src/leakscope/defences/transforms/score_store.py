"""Finished scores in one SQLite file: every (policy, picture) is a row, and what has a row is not computed again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from leakscope.errors import BadInputError, StorageError, UsageError
from leakscope.files import private_folder

FILE = "scores.sqlite"
_NOT_WRITTEN = ("full", "unable to open", "readonly", "disk I/O")
_TABLES = """
CREATE TABLE IF NOT EXISTS search (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS score (
    kind TEXT NOT NULL, policy TEXT NOT NULL, draw INTEGER NOT NULL, place INTEGER NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (kind, policy, draw, place)
) WITHOUT ROWID;
"""


class Key(NamedTuple):
    """What a score is of.

    Attributes:
        kind: "privacy", "accuracy", or what else is measured of a policy.
        policy: in its one form.
        draw: which random numbers: 0 for the search itself, others to see how much they matter.
        place: the picture, or the batch of pictures.
    """

    kind: str
    policy: str
    draw: int
    place: int


@dataclass(frozen=True)
class ScoreStore:
    """An open file of scores; `open_store` makes one."""

    connection: sqlite3.Connection
    path: Path

    def read(self) -> dict[Key, float]:
        """All finished scores."""
        with _explained(self.path):
            rows = self.connection.execute("SELECT kind, policy, draw, place, value FROM score").fetchall()
        return {Key(*row[:4]): row[4] for row in rows}

    def write(self, scores: Iterable[tuple[Key, float]]) -> None:
        """Add scores, all of them or, when the power fails, none."""
        with _explained(self.path), self.connection:
            self.connection.executemany(
                "INSERT OR REPLACE INTO score VALUES (?, ?, ?, ?, ?)", [(*key, value) for key, value in scores]
            )


@contextmanager
def open_store(folder: Path, identity: Mapping[str, Any]) -> Iterator[ScoreStore]:
    """Open or create the scores in `folder` for one process at a time.

    Args:
        folder: created when absent.
        identity: plain JSON; scores of another identity are not mixed with these.

    Raises:
        UsageError: another process has it open, or it holds the scores of another search.
        BadInputError: the file is not one of ours.
    """
    path = private_folder(folder) / FILE
    if path.is_symlink():
        raise StorageError(f"{path}: expected a plain file or none, got a symbolic link; choose another folder")
    with _explained(path):
        connection = sqlite3.connect(path, timeout=0.2)
    try:
        with _explained(path):
            # The lock is the kernel's: it ends with the process, however that ends.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            # A lost power supply may cost the last rows, never the file; a killed process costs nothing.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            with connection:
                connection.executescript(_TABLES)
        path.chmod(0o600)
        store = ScoreStore(connection, path)
        _check_identity(store, json.dumps(identity, sort_keys=True))
        yield store
    finally:
        connection.close()


def _check_identity(store: ScoreStore, identity: str) -> None:
    with _explained(store.path), store.connection:
        found = store.connection.execute("SELECT value FROM search WHERE name = 'identity'").fetchone()
        if found is None:
            store.connection.execute("INSERT INTO search VALUES ('identity', ?)", [identity])
            return
    if found[0] != identity:
        raise UsageError(
            f"{store.path} holds the scores of another search ({_difference(found[0], identity)}); "
            "run the command it belongs to, or choose another --out"
        )


def _difference(before: str, now: str) -> str:
    try:
        old, new = json.loads(before), json.loads(now)
        changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
        told = [f"{name} {str(old.get(name))[:40]} there, {str(new.get(name))[:40]} here" for name in changed]
        return "; ".join(told)
    except (ValueError, AttributeError, TypeError):
        return "it cannot be read"


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise UsageError(f"{path.parent} is being searched by another process; wait until it ends") from error
        if any(word in text for word in _NOT_WRITTEN):
            raise StorageError(f"{path}: cannot be written ({text}); what was finished stays finished") from error
        raise BadInputError(f"{path}: not the scores of a search ({text}); choose another folder") from error
