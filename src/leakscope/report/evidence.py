"""From cells to evidence: which examples count, which is worst, and per defence.

Only cells that ended `ok` with finite scores count. A refused or sealed cell was never
attackable and is left out of the success rate; every other ending counts against it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from leakscope.report.grades import RECOGNISABLE, UNKNOWN, letter, level_example
from leakscope.report.schema import CellRecord, DefenceCost

NO_DEFENCE = "none"
# Cells in which there was nothing to attack: neither success nor failure.
NOT_ATTACKABLE = frozenset({"refused", "sealed"})
ENOUGH_OK = 0.95


@dataclass(frozen=True)
class Example:
    """One private example of one cell, with its scores."""

    cell: CellRecord
    index: int
    psnr: float
    ssim: float | None
    baseline: float | None
    lpips: float | None
    label_correct: bool | None

    @property
    def level(self) -> int:
        """Level 0–5 of this example."""
        return level_example(self.psnr, self.ssim, baseline_psnr=self.baseline) or 0

    @property
    def grade(self) -> str:
        """Letter of this example."""
        return letter(self.level)

    @property
    def gain(self) -> float | None:
        """PSNR above the guess, None when no guess was measured."""
        return None if self.baseline is None else self.psnr - self.baseline

    @property
    def badness(self) -> tuple[int, float, float]:
        """Sort key: the larger, the more was given away."""
        return self.level, self.psnr, self.ssim or 0.0


@dataclass(frozen=True)
class Group:
    """Evidence over some cells."""

    examples: tuple[Example, ...]
    ok: int
    attackable: int
    statuses: tuple[str, ...]

    @property
    def worst(self) -> Example | None:
        """The example of which most was given away."""
        return max(self.examples, key=lambda example: example.badness, default=None)

    @property
    def is_trusted(self) -> bool:
        """Whether enough attacks ended well for an absence of leakage to mean something."""
        return self.attackable > 0 and self.ok >= ENOUGH_OK * self.attackable

    @property
    def is_sealed(self) -> bool:
        """Whether every cell was sealed: the server could not read any update."""
        return bool(self.statuses) and set(self.statuses) == {"sealed"}

    @property
    def grade(self) -> str:
        """Letter of the worst example; '?' when failed attacks may hide a worse one.

        A recognisable image is proof, however many other attacks failed.
        """
        worst = self.worst
        return worst.grade if worst and (self.is_trusted or worst.level >= RECOGNISABLE) else UNKNOWN

    @property
    def median_psnr(self) -> float | None:
        """Median PSNR over the examples."""
        return median(example.psnr for example in self.examples) if self.examples else None

    @property
    def best_psnr(self) -> float | None:
        """Highest PSNR over the examples."""
        return max((example.psnr for example in self.examples), default=None)

    @property
    def best_ssim(self) -> float | None:
        """Highest SSIM over the examples."""
        return max((example.ssim for example in self.examples if example.ssim is not None), default=None)

    def above(self, threshold: float) -> int:
        """How many examples exceed `threshold` dB."""
        return sum(example.psnr > threshold for example in self.examples)


def examples_of(cell: CellRecord) -> list[Example]:
    """The scored examples of a cell; empty unless it ended ok."""
    if cell.status != "ok":
        return []
    found = []
    for index in range(len(cell.column("psnr"))):
        psnr = _psnr(cell, index)
        if psnr is None:
            continue
        found.append(
            Example(
                cell=cell,
                index=index,
                psnr=psnr,
                ssim=_at(cell, "ssim", index),
                baseline=_at(cell, "baseline_psnr", index),
                lpips=_at(cell, "lpips", index),
                label_correct=None if (right := _at(cell, "label_correct", index)) is None else bool(right),
            )
        )
    return found


def is_evidence(cell: CellRecord) -> bool:
    """Whether the cell ended ok and every one of its scores is a number."""
    count = len(cell.column("psnr"))
    return cell.status == "ok" and count > 0 and all(_psnr(cell, index) is not None for index in range(count))


def group(cells: Iterable[CellRecord]) -> Group:
    """Collect the evidence of `cells`."""
    chosen = list(cells)
    return Group(
        examples=tuple(example for cell in chosen for example in examples_of(cell)),
        ok=sum(is_evidence(cell) for cell in chosen),
        attackable=sum(cell.status not in NOT_ATTACKABLE for cell in chosen),
        statuses=tuple(cell.status for cell in chosen),
    )


@dataclass(frozen=True)
class DefenceEvidence:
    """One defence against both attackers, and what it costs."""

    name: str
    both: Group
    naive: Group
    adaptive: Group
    accuracy_drop: float | None
    training_diverged: bool

    @property
    def grade(self) -> str:
        """Letter by the stronger of both attackers."""
        return self.both.grade

    @property
    def is_recommendable(self) -> bool:
        """Whether its protection was really measured, against the attacker who knows it too."""
        return self.both.is_trusted and self.adaptive.is_trusted and not self.training_diverged

    @property
    def rank(self) -> tuple[int, float, float]:
        """Sort key: the smaller, the better protected, then the cheaper."""
        worst = self.both.worst
        level = worst.level if worst else len("ABCDEF")
        return level, self.both.best_psnr or 0.0, self.accuracy_drop or 0.0


def by_defence(cells: Sequence[CellRecord], costs: Sequence[DefenceCost] = ()) -> list[DefenceEvidence]:
    """Evidence per defence, in order of first appearance."""
    found = []
    for name in dict.fromkeys(cell.defence for cell in cells):
        mine = [cell for cell in cells if cell.defence == name]
        paid = [cost for cost in costs if cost.name == name]
        drops = [cost.accuracy_drop for cost in paid if cost.accuracy_drop is not None]
        found.append(
            DefenceEvidence(
                name=name,
                both=group(mine),
                naive=group(cell for cell in mine if not cell.adaptive),
                adaptive=group(cell for cell in mine if cell.adaptive),
                accuracy_drop=max(drops, default=None),
                training_diverged=any(cost.diverged for cost in paid),
            )
        )
    return found


def _psnr(cell: CellRecord, index: int) -> float | None:
    value = _at(cell, "psnr", index)
    # JSON has no infinity: a perfect copy arrives without PSNR, and must not pass for a failed attack.
    return math.inf if value is None and _at(cell, "mse", index) == 0 else value


def _at(cell: CellRecord, metric: str, index: int) -> float | None:
    values = cell.column(metric)
    value = values[index] if index < len(values) else None
    return None if value is None or math.isnan(value) else float(value)
