"""The matrix attack × defence, one per setting, with what each defence costs beneath."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from markupsafe import escape

from leakscope.report.evidence import NO_DEFENCE, Group, group
from leakscope.report.schema import CellRecord, DefenceCost
from leakscope.report.words import local_words

# Columns of attackers that fit a sheet of paper in landscape; a wider matrix is continued in another one.
_MOST_COLUMNS = 10
# Of the 5 MB of a page, what matrices and lines may take together with all else; bytes of markup, measured.
_MATRIX_BYTES, _LINE_BYTES = 1_000_000, 2_200_000
_FRAME_BYTES, _ENTRY_BYTES, _COST_BYTES, _LINE_MARKUP = 450, 420, 500, 90


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

    @property
    def has_costs(self) -> bool:
        """Whether any cost was measured."""
        return any(column.cost for column in self.columns)

    @property
    def has_guarantees(self) -> bool:
        """Whether any defence proves something."""
        return any(column.cost and column.cost.guarantee for column in self.columns)

    @property
    def bytes(self) -> int:
        """About what it takes on the page, rather too much."""
        names = [2 * self.setting, *(column.name for column in self.columns), *(row.attack for row in self.rows)]
        width = sum(1 + column.adaptive for column in self.columns)
        costs = _COST_BYTES * len(self.columns) if self.has_costs else 0
        return _FRAME_BYTES + costs + _ENTRY_BYTES * width * len(self.rows) + sum(map(_length, names))


@dataclass(frozen=True)
class ContestLine:
    """One contest of a matrix that is too large for the page."""

    setting: str
    attack: str
    defence: str
    attacker: str
    contest: Contest
    is_first: bool

    @property
    def bytes(self) -> int:
        """About what it takes on the page."""
        setting = self.setting if self.is_first else ""
        return _LINE_MARKUP + sum(map(_length, (setting, self.attack, self.defence, self.attacker, self.contest.words)))


@dataclass(frozen=True)
class Layout:
    """All contests of a run: as matrices as long as there is room, then in lines; `left_out` counts what is neither."""

    matrices: tuple[Matrix, ...]
    lines: tuple[ContestLine, ...]
    left_out: int
    settings: int


def lay_out(found: Sequence[Matrix]) -> Layout:
    """Give the page to the worst settings first; what needs more room than there is gets one line a contest."""
    whole, lines, left_out, room, line_room = list[Matrix](), list[ContestLine](), 0, _MATRIX_BYTES, _LINE_BYTES
    for matrix in found:
        if matrix.bytes <= room:
            room -= matrix.bytes
            whole += _split(matrix)
            continue
        for line in _list_contests(matrix):
            line_room -= line.bytes
            if line_room >= 0:
                lines.append(line)
            else:
                left_out += 1
    return Layout(tuple(whole), tuple(lines), left_out, len(found))


def _split(matrix: Matrix) -> list[Matrix]:
    """The matrix in parts that are no wider than a sheet of paper."""
    parts, width = [[0]], 0
    for place, column in enumerate(matrix.columns):
        wide = 1 + column.adaptive
        if width + wide > _MOST_COLUMNS:
            parts, width = [*parts, [place]], 0
        elif place:
            parts[-1].append(place)
        width += wide
    if len(parts) == 1:
        return [matrix]
    return [
        Matrix(
            f"{matrix.setting} · part {number} of {len(parts)}",
            tuple(matrix.columns[place] for place in part),
            tuple(replace(row, entries=tuple(row.entries[place] for place in part)) for row in matrix.rows),
        )
        for number, part in enumerate(parts, 1)
    ]


def _list_contests(matrix: Matrix) -> Iterator[ContestLine]:
    named = partial(ContestLine, matrix.setting)
    for row in matrix.rows:
        for column, (unaware, knowing) in zip(matrix.columns, row.entries, strict=True):
            attacker = "" if column.name == NO_DEFENCE else "unaware"
            is_first = row is matrix.rows[0] and column is matrix.columns[0]
            yield named(row.attack, column.name, attacker, unaware, is_first)
            if knowing is not None:
                yield named(row.attack, column.name, "knows it", knowing, is_first=False)


def _length(text: str) -> int:
    """Bytes of a text in HTML."""
    return len(str(escape(text)).encode("utf-8", "replace"))


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
        for name in names
    ]
    return Matrix(setting, tuple(columns), tuple(_row(attack, columns, cells) for attack in attacks))


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
