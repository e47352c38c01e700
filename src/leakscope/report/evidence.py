"""From cells to evidence: which examples count, which is worst, and per defence.

Two rules. What was rebuilt leaks whatever the status: every scored example can be the worst one. Only cells that
ended `ok` with finite scores are evidence that something is safe; a refused or sealed cell was never attackable and is
left out of the success rate, and every other ending counts against it.

`Group.worst` is the one worst example of some cells: grade, PSNR, SSIM, gain and picture of a report come from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from leakscope.report.grades import RECOGNISABLE, UNKNOWN, badness, letter
from leakscope.report.schema import CellRecord, DefenceCost, OpenedFindings
from leakscope.results import GUESS

NO_DEFENCE = "none"
OK = "ok"
# Cells in which there was nothing to attack: neither success nor failure.
NOT_ATTACKABLE = frozenset({"refused", "sealed"})
ENOUGH_OK = 0.95


@dataclass(frozen=True)
class Example:
    """One private example of one cell, with its scores; `baseline` is the best of `baselines`, by name."""

    cell: CellRecord
    index: int
    psnr: float
    ssim: float | None
    baseline: float | None
    lpips: float | None
    label_correct: bool | None
    baselines: Mapping[str, float] = field(default_factory=dict)

    @property
    def level(self) -> int:
        """Level 0–5 of this example."""
        return self.badness[0]

    @property
    def grade(self) -> str:
        """Letter of this example."""
        return letter(self.level)

    @property
    def gain(self) -> float | None:
        """PSNR above the best null baseline, None when none was measured."""
        return None if self.baseline is None else self.psnr - self.baseline

    @property
    def best_null(self) -> str:
        """Name of the baseline that came closest; a blind guess where a record names none, as version 0.1 wrote it."""
        return max(self.baselines, key=lambda name: self.baselines[name], default=GUESS)

    @property
    def badness(self) -> tuple[int, float, float, float]:
        """Sort key: the larger, the more was given away."""
        return badness(self.psnr, self.ssim, baseline_psnr=self.baseline)

    @property
    def identity(self) -> tuple[str, int]:
        """Which private example this is, whoever attacked it and in whichever round."""
        clients = max(1, self.cell.victims * self.cell.batch_size)
        repeats = self.cell.rounds > 1 and len(self.cell.column("psnr")) % clients == 0
        return self.cell.data, self.index % clients if repeats else self.index


@dataclass(frozen=True)
class Group:
    """Evidence over some cells: every scored example, and how the cells ended.

    `missing` names the attacks of which not a single run is evidence; `opened` is what others than the server get of
    sealed updates.
    """

    examples: tuple[Example, ...]
    ok: int
    attackable: int
    statuses: tuple[str, ...]
    missing: tuple[str, ...] = ()
    opened: tuple[OpenedFindings, ...] = ()

    @property
    def worst(self) -> Example | None:
        """The example of which most was given away: by level, then gain over the best null, then PSNR, then SSIM."""
        return max(self.examples, key=lambda example: example.badness, default=None)

    @property
    def worst_psnr(self) -> float | None:
        """PSNR of the worst example."""
        return self.worst.psnr if self.worst else None

    @property
    def worst_ssim(self) -> float | None:
        """SSIM of the worst example."""
        return self.worst.ssim if self.worst else None

    @property
    def worst_gain(self) -> float | None:
        """Gain of the worst example over the best null baseline."""
        return self.worst.gain if self.worst else None

    @property
    def worst_baseline(self) -> float | None:
        """What is reached of the worst example without the update, by the best null."""
        return self.worst.baseline if self.worst else None

    @property
    def evidence(self) -> tuple[Example, ...]:
        """The examples of cells that ended ok: those that can show protection."""
        return tuple(example for example in self.examples if example.cell.status == OK)

    @property
    def is_trusted(self) -> bool:
        """Whether enough attacks ended well, each in at least one run, for an absence of leakage to mean something."""
        return self.attackable > 0 and self.ok >= ENOUGH_OK * self.attackable and not self.missing

    @property
    def is_sealed(self) -> bool:
        """Whether every cell was sealed: the server could not read any update."""
        return bool(self.statuses) and set(self.statuses) == {"sealed"}

    @property
    def grade(self) -> str:
        """Letter of the worst example; '?' when failed attacks may hide a worse one than a merely coarse one."""
        worst = self.worst
        return worst.grade if worst and (self.is_trusted or worst.level >= RECOGNISABLE) else UNKNOWN

    @property
    def median_psnr(self) -> float | None:
        """Median PSNR over the examples of cells that ended ok."""
        return median(example.psnr for example in self.evidence) if self.evidence else None

    def above(self, threshold: float) -> int:
        """How many reconstructions exceed `threshold` dB."""
        return sum(example.psnr > threshold for example in self.examples)

    def exposed(self, threshold: float) -> tuple[int, int]:
        """How many private examples exceed `threshold` dB in the strongest attack on each, and how many there are."""
        everyone = {example.identity for example in self.examples}
        return len({example.identity for example in self.examples if example.psnr > threshold}), len(everyone)


def examples_of(cell: CellRecord) -> list[Example]:
    """The scored examples of a cell, whatever its status."""
    found = []
    for index in range(len(cell.column("psnr"))):
        psnr = _psnr(cell, index)
        if psnr is None:
            continue
        nulls = {name: value for name, values in cell.baselines.items() if (value := _entry(values, index)) is not None}
        best = _at(cell, "baseline_psnr", index)
        found.append(
            Example(
                cell=cell,
                index=index,
                psnr=psnr,
                ssim=_at(cell, "ssim", index),
                baseline=max((*nulls.values(), *(() if best is None else (best,))), default=None),
                lpips=_at(cell, "lpips", index),
                label_correct=None if (right := _at(cell, "label_correct", index)) is None else bool(right),
                baselines=nulls,
            )
        )
    return found


def is_evidence(cell: CellRecord) -> bool:
    """Whether the cell ended ok and every one of its scores is a number."""
    count = len(cell.column("psnr"))
    return cell.status == OK and count > 0 and all(_psnr(cell, index) is not None for index in range(count))


def group(cells: Iterable[CellRecord]) -> Group:
    """Collect the evidence of `cells`."""
    chosen = list(cells)
    tried = [cell for cell in chosen if cell.status not in NOT_ATTACKABLE]
    shown = {cell.attack for cell in tried if is_evidence(cell)}
    return Group(
        examples=tuple(example for cell in chosen for example in examples_of(cell)),
        ok=sum(is_evidence(cell) for cell in tried),
        attackable=len(tried),
        statuses=tuple(cell.status for cell in chosen),
        missing=tuple(dict.fromkeys(cell.attack for cell in tried if cell.attack not in shown)),
        opened=tuple(one for cell in chosen for one in cell.opened),
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
    at_chance: bool = False
    # Of `accuracy_drop`, at 95 %.
    drop_interval: tuple[float, float] | None = None

    @property
    def grade(self) -> str:
        """Letter by the stronger of both attackers."""
        return self.both.grade

    @property
    def is_recommendable(self) -> bool:
        """Whether protection was measured, against the attacker who knows it too, of a network that learns."""
        is_measured = self.both.is_trusted and self.adaptive.is_trusted
        return is_measured and not self.training_diverged and not self.at_chance

    @property
    def rank(self) -> tuple[int, float, float]:
        """Sort key: the smaller, the better protected, then the cheaper."""
        worst = self.both.worst
        level = worst.level if worst else len("ABCDEF")
        return level, self.both.worst_psnr or 0.0, self.accuracy_drop or 0.0


def by_defence(cells: Sequence[CellRecord], costs: Sequence[DefenceCost] = ()) -> list[DefenceEvidence]:
    """Evidence per defence, in order of first appearance."""
    found = []
    for name in dict.fromkeys(cell.defence for cell in cells):
        mine = [cell for cell in cells if cell.defence == name]
        paid = [cost for cost in costs if cost.name == name]
        known = [cost for cost in paid if cost.accuracy_drop is not None]
        highest = max(known, key=lambda cost: cost.accuracy_drop or 0.0, default=None)
        found.append(
            DefenceEvidence(
                name=name,
                both=group(mine),
                naive=group(cell for cell in mine if not cell.adaptive),
                adaptive=group(cell for cell in mine if cell.adaptive),
                accuracy_drop=None if highest is None else highest.accuracy_drop,
                training_diverged=any(cost.diverged for cost in paid),
                at_chance=any(cost.at_chance for cost in paid),
                drop_interval=None if highest is None else highest.drop_interval,
            )
        )
    return found


def _psnr(cell: CellRecord, index: int) -> float | None:
    value = _at(cell, "psnr", index)
    # JSON has no infinity: a perfect copy arrives without PSNR, and must not pass for a failed attack.
    return math.inf if value is None and _at(cell, "mse", index) == 0 else value


def _at(cell: CellRecord, metric: str, index: int) -> float | None:
    return _entry(cell.column(metric), index)


def _entry(values: Sequence[float | bool | None], index: int) -> float | None:
    value = values[index] if index < len(values) else None
    return None if value is None or math.isnan(value) else float(value)
