"""What a sweep came to, read from its directory when it is looked at: memory holds one cell at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from leakscope.runner.cells import CellOutcome
from leakscope.runner.ledger import FinishedCell, load_cell


class Outcomes(Sequence[CellOutcome | None]):
    """The outcomes of cells in their order; None where a cell has none. Each look reads and checks the cell's file."""

    def __init__(self, directory: Path, cells: Sequence[tuple[str, FinishedCell | None]]) -> None:
        """Of `cells`, each a key and what the journal says of it."""
        self._directory = directory
        self._cells = cells

    def __len__(self) -> int:
        return len(self._cells)

    @overload
    def __getitem__(self, place: int) -> CellOutcome | None: ...

    @overload
    def __getitem__(self, place: slice) -> Outcomes: ...

    def __getitem__(self, place: int | slice) -> CellOutcome | Outcomes | None:
        if isinstance(place, slice):
            return Outcomes(self._directory, self._cells[place])
        key, entry = self._cells[place]
        return None if entry is None else load_cell(self._directory, key, entry)[1]


@dataclass(frozen=True)
class SweepResult:
    """What a sweep came to.

    `outcomes` follow the order of the cells and are read back from disk one by one; an entry is None
    only where the sweep was interrupted, or its time was over, before that cell. `executed` cells ran in this call,
    `reused` ones were finished before it. `out_of_time`: `seconds` were over before the last cell began. `signal` is
    the number of the one that interrupted it, 0 where none did. `unended` are the keys of cells that began in this call
    and were stopped before they had a result.
    """

    outcomes: Sequence[CellOutcome | None]
    executed: int
    reused: int
    interrupted: bool
    out_of_time: bool = False
    signal: int = 0
    unended: frozenset[str] = frozenset()

    def explain_missing(self, key: str) -> str:
        """Why a cell has no outcome."""
        why = "the budget was over" if self.out_of_time else "interrupted"
        return f"{why} before it {'ended' if key in self.unended else 'ran'}"

    @property
    def finished(self) -> tuple[CellOutcome, ...]:
        """The outcomes there are, all in memory."""
        return tuple(outcome for outcome in self.outcomes if outcome is not None)
