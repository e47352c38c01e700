"""Which defences are worth their price: accuracy against leakage, and the front of those that no other one beats.

Leakage is the highest PSNR that any attacker tried reached on any example. Only what was measured can be on the front
or beat another: attacks that broke down, or none by someone who knows the defence, leave leakage a lower bound, and a
network at chance has no accuracy to trade.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from leakscope.report.evidence import NO_DEFENCE, DefenceEvidence, by_defence
from leakscope.report.schema import CellRecord, DefenceCost

Standing = Literal["front", "dominated", "at chance", "inconclusive"]
# What leaks at least so much is beaten for certain by what is as accurate and leaks at most that.
_BEATABLE = ("front", "inconclusive")


@dataclass(frozen=True)
class DefencePlace:
    """One defence of one network and data set, between accuracy and leakage."""

    name: str
    accuracy: float
    interval: tuple[float, float]
    leakage: float
    grade: str
    standing: Standing

    def beats(self, other: DefencePlace) -> bool:
        """Whether this one is nowhere worse than `other` and somewhere better."""
        nowhere_worse = self.accuracy >= other.accuracy and self.leakage <= other.leakage
        return nowhere_worse and (self.accuracy > other.accuracy or self.leakage < other.leakage)


def places(cells: Sequence[CellRecord], costs: Sequence[DefenceCost]) -> list[DefencePlace]:
    """Every defence of one network and data set whose accuracy and leakage are known, in order of first appearance."""
    paid = {cost.name: cost for cost in costs if cost.accuracy is not None and not cost.diverged}
    found = [
        place
        for row in by_defence(cells, costs)
        if row.name in paid and (place := _place(row, paid[row.name])) is not None
    ]
    rivals = [place for place in found if place.standing == "front"]
    return [
        replace(place, standing="dominated")
        if place.standing in _BEATABLE and any(rival.beats(place) for rival in rivals)
        else place
        for place in found
    ]


def front(found: Sequence[DefencePlace]) -> list[DefencePlace]:
    """Those that no other one beats, the most accurate first."""
    chosen = [place for place in found if place.standing == "front"]
    return sorted(chosen, key=lambda place: (-place.accuracy, place.leakage))


def _place(row: DefenceEvidence, cost: DefenceCost) -> DefencePlace | None:
    """The defence as if no other were there; None where nothing of it was scored."""
    if not row.both.examples or cost.accuracy is None:
        return None
    known = row.both.is_trusted and (row.name == NO_DEFENCE or row.adaptive.is_trusted)
    low, high = cost.ci if cost.ci is not None and len(cost.ci) == 2 else (None, None)
    return DefencePlace(
        name=row.name,
        accuracy=cost.accuracy,
        interval=(cost.accuracy if low is None else low, cost.accuracy if high is None else high),
        leakage=max(example.psnr for example in row.both.examples),
        grade=row.grade,
        standing="at chance" if cost.at_chance else "front" if known else "inconclusive",
    )
