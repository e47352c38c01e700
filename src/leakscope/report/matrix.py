"""The matrix attack × defence, one per setting, with what each defence costs beneath."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leakscope.report.evidence import NO_DEFENCE, Group, group
from leakscope.report.schema import CellRecord, DefenceCost
from leakscope.report.words import local_words

_MOST_ATTACKS = 40
_MOST_DEFENCES = 20
MOST_MATRICES = 12


@dataclass(frozen=True)
class Contest:
    """One attack against one defence by one attacker; `words` replace figures when there are none."""

    group: Group
    words: str

    @property
    def partial(self) -> str:
        """How the runs ended, said only when some did not end well."""
        total, ended = len(self.group.statuses), dict.fromkeys(self.group.statuses)
        if self.group.ok == total:
            return ""
        return f"{self.group.ok} of {total} runs ok" if self.group.ok else ", ".join(ended)


@dataclass(frozen=True)
class Column:
    """One defence: whether both attackers were run, and its cost if measured."""

    name: str
    adaptive: bool
    cost: DefenceCost | None


@dataclass(frozen=True)
class Row:
    """One attack across the defences, (unaware, knowing) each."""

    attack: str
    paper: str
    entries: tuple[tuple[Contest, Contest | None], ...]


@dataclass(frozen=True)
class Matrix:
    """One setting."""

    setting: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    left_out: int

    @property
    def has_costs(self) -> bool:
        """Whether any cost was measured."""
        return any(column.cost for column in self.columns)

    @property
    def has_guarantees(self) -> bool:
        """Whether any defence proves something."""
        return any(column.cost and column.cost.guarantee for column in self.columns)


def matrices(cells: Sequence[CellRecord], costs: Sequence[DefenceCost]) -> list[Matrix]:
    """One matrix per setting, the setting with the worst leak first."""
    settings: dict[str, list[CellRecord]] = {}
    for cell in cells:
        settings.setdefault(setting_of(cell), []).append(cell)
    order = sorted(settings.items(), key=lambda item: _badness(item[1]), reverse=True)
    return [_matrix(name, mine, costs) for name, mine in order]


def setting_of(cell: CellRecord) -> str:
    """Say in one line what is shared by all cells of a matrix."""
    shared = "one gradient" if cell.local is None else local_words(cell.local)
    return f"{cell.model} on {cell.data} · scenario {cell.scenario} · batch {cell.batch_size} · {shared}"


def _matrix(setting: str, cells: Sequence[CellRecord], costs: Sequence[DefenceCost]) -> Matrix:
    attacks = list(dict.fromkeys(cell.attack for cell in cells))
    names = sorted(dict.fromkeys(cell.defence for cell in cells), key=lambda name: name != NO_DEFENCE)
    columns = [
        Column(
            name=name,
            adaptive=any(cell.adaptive for cell in cells if cell.defence == name),
            cost=_cost(name, cells[0], costs),
        )
        for name in names[:_MOST_DEFENCES]
    ]
    rows = [_row(attack, columns, cells) for attack in attacks[:_MOST_ATTACKS]]
    left_out = max(0, len(attacks) - _MOST_ATTACKS) + max(0, len(names) - _MOST_DEFENCES)
    return Matrix(setting, tuple(columns), tuple(rows), left_out)


def _row(attack: str, columns: Sequence[Column], cells: Sequence[CellRecord]) -> Row:
    mine = [cell for cell in cells if cell.attack == attack]
    entries = [
        (
            _contest(mine, lambda cell, name=column.name: cell.defence == name and not cell.adaptive),
            _contest(mine, lambda cell, name=column.name: cell.defence == name and cell.adaptive)
            if column.adaptive
            else None,
        )
        for column in columns
    ]
    return Row(attack, mine[0].attack_paper, tuple(entries))


def _contest(cells: Sequence[CellRecord], wanted: Callable[[CellRecord], bool]) -> Contest:
    found = group(cell for cell in cells if wanted(cell))
    if not found.statuses:
        return Contest(found, "not run")
    if found.examples:
        return Contest(found, "")
    counted = Counter("no score" if status == "ok" else status for status in found.statuses)
    return Contest(found, ", ".join(counted))


def _cost(name: str, cell: CellRecord, costs: Sequence[DefenceCost]) -> DefenceCost | None:
    return next((cost for cost in costs if (cost.name, cost.model, cost.data) == (name, cell.model, cell.data)), None)


def _badness(cells: Sequence[CellRecord]) -> tuple[int, float, float, float]:
    worst = group(cells).worst
    return worst.badness if worst else (-1, 0.0, 0.0, 0.0)
