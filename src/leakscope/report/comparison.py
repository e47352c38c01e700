"""Two runs side by side: which results are new, gone, better or worse, and what changed in accuracy.

Cells are matched by what they are: network, data, attack, defence, attacker, scenario, client's training and seed.
Their keys also cover versions and files, so they differ between two runs of the same audit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from leakscope.report.evidence import NO_DEFENCE, Example, group, is_evidence
from leakscope.report.grades import UNKNOWN
from leakscope.report.schema import CellRecord, DefenceCost, Summary
from leakscope.report.words import decibel, local_words, plural

Change = Literal["worse", "new", "lost", "gone", "measured", "better", "unchanged"]
# In the order in which a reader wants them.
CHANGES: tuple[Change, ...] = ("worse", "new", "lost", "gone", "measured", "better", "unchanged")
MEANING: dict[Change, str] = {
    "worse": "more was given away than before",
    "new": "only in the second run",
    "lost": "was a result, and is none any more",
    "gone": "only in the first run",
    "measured": "was no result, and is one now",
    "better": "less was given away than before",
    "unchanged": "within the tolerance",
}
# Two runs of one attack with other seeds or versions differ by about this much.
TOLERANCE_DB = 0.5


@dataclass(frozen=True)
class Side:
    """One cell of one run: how it ended and its worst example; `psnr` is None where nothing was scored."""

    status: str
    grade: str
    psnr: float | None
    above: bool


@dataclass(frozen=True)
class CellChange:
    """One cell in both runs; `before` or `after` is None where a run does not have it."""

    name: str
    change: Change
    before: Side | None
    after: Side | None

    @property
    def is_regression(self) -> bool:
        """Whether it gives away more than before, or was not there before, and is above the gate now."""
        return self.change in ("worse", "new") and self.after is not None and self.after.above


@dataclass(frozen=True)
class AccuracyChange:
    """Accuracy under one defence in both runs."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class Comparison:
    """What changed from one run to the next."""

    threshold_before: float
    threshold_after: float
    cells: tuple[CellChange, ...]
    accuracies: tuple[AccuracyChange, ...]

    @property
    def exit_code(self) -> int:
        """1 when something above the gate got worse or is new, else 3 when evidence was lost, else 0."""
        if any(cell.is_regression for cell in self.cells):
            return 1
        return 3 if any(cell.change == "lost" for cell in self.cells) else 0

    @property
    def counts(self) -> dict[Change, int]:
        """How many cells changed how; only what occurs."""
        found = Counter(cell.change for cell in self.cells)
        return {change: found[change] for change in CHANGES if found[change]}

    @property
    def line(self) -> str:
        """The verdict in one line."""
        gate = f"the gate of {self.threshold_after:g} dB"
        regressions = [cell for cell in self.cells if cell.is_regression]
        lost = sum(cell.change == "lost" for cell in self.cells)
        if regressions:
            first = regressions[0]
            return f"WORSE: {plural(len(regressions), 'result')} above {gate}; {first.name}: {change_words(first)}"
        if lost:
            return f"INCONCLUSIVE: {plural(lost, 'result')} of the first run ended without evidence in the second"
        if not self.cells:
            return "INCONCLUSIVE: neither run holds a result"
        return f"NOT WORSE: nothing above {gate} is new or grew by more than {TOLERANCE_DB:g} dB"

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON; an infinite PSNR is the text "inf"."""
        content = asdict(self) | {"exit_code": self.exit_code, "line": self.line, "counts": self.counts}
        for cell in content["cells"]:
            for side in (cell["before"], cell["after"]):
                if side is not None and side["psnr"] == float("inf"):
                    side["psnr"] = "inf"
        return content


def compare_runs(before: Summary, after: Summary) -> Comparison:
    """Match the cells of two runs and say what changed, worst first."""
    old, new = _by_identity(before.cells), _by_identity(after.cells)
    changes = [
        _change(
            name,
            _side(old.get(name), before.threshold_psnr),
            _side(new.get(name), after.threshold_psnr),
        )
        for name in dict.fromkeys([*new, *old])
    ]
    return Comparison(
        before.threshold_psnr,
        after.threshold_psnr,
        tuple(sorted(changes, key=_order)),
        _accuracies(before.defences, after.defences),
    )


def change_words(cell: CellChange) -> str:
    """Say what became of one cell: '16.4 dB (D) → 24.1 dB (E)'."""
    return f"{_side_words(cell.before)} → {_side_words(cell.after)}"


def _side_words(side: Side | None) -> str:
    if side is None:
        return "not run"
    figures = "no score" if side.psnr is None else f"{decibel(side.psnr)} ({side.grade})"
    return figures if side.status == "ok" else f"{side.status}, {figures}"


def identity(cell: CellRecord) -> str:
    """What a cell is, in words that two runs share."""
    defence = "no defence" if cell.defence == NO_DEFENCE else cell.defence
    defence += " (known to the attacker)" if cell.adaptive else ""
    training = "one gradient" if cell.local is None else local_words(cell.local)
    rounds = f", {cell.rounds} rounds" if cell.rounds > 1 else ""
    return (
        f"{cell.attack} against {defence}, {cell.model} on {cell.data}, scenario {cell.scenario}, "
        f"batch {cell.batch_size}, {training}{rounds}, seed {cell.seed}"
    )


def _by_identity(cells: Sequence[CellRecord]) -> dict[str, CellRecord]:
    found: dict[str, CellRecord] = {}
    for cell in cells:
        name, number = identity(cell), 1
        # Cells that differ in nothing a reader sees are told apart by their order.
        while name in found:
            number += 1
            name = f"{identity(cell)} ({number})"
        found[name] = cell
    return found


def _side(cell: CellRecord | None, threshold: float) -> Side | None:
    if cell is None:
        return None
    mine = group([cell])
    worst: Example | None = mine.worst
    status = "no score" if cell.status == "ok" and not is_evidence(cell) else cell.status
    return Side(
        status=status,
        grade=UNKNOWN if worst is None else worst.grade,
        psnr=None if worst is None else worst.psnr,
        above=mine.above(threshold) > 0,
    )


def _change(name: str, before: Side | None, after: Side | None) -> CellChange:
    return CellChange(name, _kind(before, after), before, after)


def _kind(before: Side | None, after: Side | None) -> Change:
    if before is None:
        return "new"
    if after is None:
        return "gone"
    if after.psnr is not None and _is_worse(before, after):
        return "worse"
    if before.status == "ok" and after.status != "ok":
        # What broke down does not protect, whatever figures it left.
        return "lost"
    if before.status != "ok":
        return "measured" if after.status == "ok" else "unchanged"
    return "better" if _is_worse(after, before) else "unchanged"


def _is_worse(before: Side, after: Side) -> bool:
    """Whether more was given away: over the gate, a worse grade, or decibels beyond the tolerance."""
    if after.psnr is None:
        return False
    if before.psnr is None:
        return after.above
    if after.above != before.above:
        return after.above
    if UNKNOWN not in (before.grade, after.grade) and before.grade != after.grade:
        return after.grade > before.grade
    return after.psnr > before.psnr + TOLERANCE_DB


def _order(cell: CellChange) -> tuple[bool, int, float]:
    shown = cell.after or cell.before
    psnr = shown.psnr if shown is not None and shown.psnr is not None else -1000.0
    return not cell.is_regression, CHANGES.index(cell.change), -psnr


def _accuracies(before: Sequence[DefenceCost], after: Sequence[DefenceCost]) -> tuple[AccuracyChange, ...]:
    old, new = ({_cost_name(cost): cost.accuracy for cost in costs} for costs in (before, after))
    return tuple(AccuracyChange(name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new]))


def _cost_name(cost: DefenceCost) -> str:
    return f"{cost.model} on {cost.data}, {'no defence' if cost.name == NO_DEFENCE else cost.name}"
