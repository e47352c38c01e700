"""Leakage over rounds: what was captured, what was attacked and what came back, in two files that grow with the run."""

from __future__ import annotations

import csv
import io
import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from leakscope.errors import StorageError
from leakscope.files import write_atomic

_LOG = logging.getLogger("flwr")
COLUMNS = (
    "round",
    "client",
    "name",
    "attack",
    "scenario",
    "status",
    "explained",
    "unrelated",
    "examples",
    "worst_psnr",
    "mean_psnr",
    "best_null_psnr",
    "seconds",
    "reason",
)


@dataclass
class RoundCounts:
    """What became of one round: nothing that a client did not do, or that was not attacked, goes unsaid.

    Attributes:
        round: number of the round, from 1.
        replies: clients that answered, with an update or with a reason for none.
        captured: updates written.
        audited: updates that were attacked.
        skipped: updates of the sample that were not attacked.
        waiting: names of the updates of the sample whose attack has not ended yet.
        failed: client and reason for each answer without an update that could be written.
        not_audited: name and reason for each update that was skipped.
    """

    round: int
    replies: int = 0
    captured: int = 0
    audited: int = 0
    skipped: int = 0
    waiting: list[str] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    not_audited: list[dict[str, str]] = field(default_factory=list)


class LeakageLog:
    """`leakage.json` and `leakage.csv` of a folder; several threads may write to it."""

    def __init__(self, folder: Path) -> None:
        """Begin with nothing; the files appear with the first round."""
        self._folder, self._lock = folder, threading.Lock()
        self._counts: dict[int, RoundCounts] = {}
        self._rows: list[dict[str, Any]] = []

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """One row for each attacked update, in the order of rounds and names."""
        with self._lock:
            return tuple(self._sorted())

    @property
    def counts(self) -> tuple[RoundCounts, ...]:
        """One for each round."""
        with self._lock:
            return tuple(self._counts[turn] for turn in sorted(self._counts))

    def capture(self, counts: RoundCounts) -> None:
        """Note a round's replies."""
        with self._lock:
            self._counts[counts.round] = counts
            self._write()

    def wait(self, turn: int, names: Sequence[str]) -> None:
        """Note the sample of a round: until its attacks end, or if they never do, the files say so."""
        with self._lock:
            self._counts.setdefault(turn, RoundCounts(turn)).waiting = list(names)
            self._write()

    def add(self, turn: int, row: dict[str, Any]) -> None:
        """Note one attacked update, and say it in Flower's log."""
        with self._lock:
            self._rows.append({"round": turn, **row})
            counts = self._counts.setdefault(turn, RoundCounts(turn))
            counts.audited += 1
            counts.waiting = [name for name in counts.waiting if name != row["name"]]
            self._write()
        _LOG.info("leakage: round %d, %s", turn, describe_row(row))

    def skip(self, turn: int, reason: str) -> None:
        """Note that what is waiting of a round will not be attacked."""
        with self._lock:
            counts = self._counts.setdefault(turn, RoundCounts(turn))
            names, counts.waiting = counts.waiting, []
            counts.skipped += len(names)
            counts.not_audited += [{"name": name, "reason": reason} for name in names]
            self._write()
        _LOG.warning("leakage: round %d, not attacked: %s: %s", turn, ", ".join(names), reason)

    def _sorted(self) -> list[dict[str, Any]]:
        return sorted(self._rows, key=lambda row: (row["round"], str(row["name"])))

    def _write(self) -> None:
        rows: list[dict[str, Any]] = [{column: row.get(column) for column in COLUMNS} for row in self._sorted()]
        told = {"rounds": [asdict(self._counts[turn]) for turn in sorted(self._counts)], "updates": rows}
        table = io.StringIO(newline="")
        writer: csv.DictWriter[str] = csv.DictWriter(table, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        try:
            write_atomic(self._folder / "leakage.json", json.dumps(told, indent=1, allow_nan=False).encode())
            write_atomic(self._folder / "leakage.csv", table.getvalue().encode())
        except StorageError as error:
            # The training goes on: it is not the watcher's to end.
            _LOG.warning("leakage: %s", error)


def describe_row(row: dict[str, Any]) -> str:
    """One attacked update in words."""
    told = f"{row['name']}: {row.get('attack', 'attack')} {row['status']}"
    if row.get("explained") is not None:
        told += f", explains {100 * max(row['explained'], 0.0):.0f} % of the update"
    if row.get("unrelated") is not None:
        told += f" ({100 * max(row['unrelated'], 0.0):.0f} % by unrelated inputs)"
    if row.get("worst_psnr") is not None:
        told += f", best example {row['worst_psnr']:.1f} dB"
    if row.get("best_null_psnr") is not None:
        told += f" ({row['best_null_psnr']:.1f} dB without the update)"
    return told + (f"; {row['reason']}" if row.get("reason") else "")
