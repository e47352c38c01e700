"""The bill of an audit before it is run, as lines and totals: what `leakscope audit --dry-run` prints."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from leakscope.audits.config import Planned, PlannedAttack
from leakscope.audits.overhead import Overhead
from leakscope.audits.plan import Plan
from leakscope.audits.price import Price, PriceList
from leakscope.audits.specs import CellSpec

TRAINING = "accuracy (training)"


@dataclass(frozen=True)
class Line:
    """All cells of one attack on one subject; seconds are of work, not of wall time.

    `seconds` holds when no attack stops early or is tried again, `at_most` when every retry is used.
    """

    subject: str
    attack: str
    cells: int
    steps: int | None
    restarts: int
    seconds_per_cell: float
    seconds: float
    at_most: float
    mb: float
    notes: tuple[str, ...] = ()
    planned_steps: int | None = None

    @classmethod
    def of(cls, cells: Sequence[CellSpec], prices: PriceList) -> Line:
        """Add up the cells of one attack."""
        first, found = cells[0], [prices.prices[cell.label] for cell in cells]
        limit, effort = _limit(first), found[0].effort
        seconds, at_most = (sum(column) for column in zip(*(_cost(cell, prices) for cell in cells), strict=True))
        return cls(
            first.subject.name,
            _name_row(first),
            len(cells),
            effort.steps,
            (limit.restarts if limit else None) or effort.restarts or 1,
            seconds_per_cell=seconds / len(cells),
            seconds=seconds,
            at_most=at_most,
            mb=max(price.mb for price in found),
            notes=_collect_notes(found),
            planned_steps=limit.steps if limit else effort.steps,
        )


@dataclass(frozen=True)
class Bill:
    """What an audit costs before it is run; `planned` is what a budget would make of it."""

    plan: Plan
    prices: PriceList
    workers: int
    budget: float | None = None
    planned: Planned | None = None
    overhead: Overhead = field(default_factory=Overhead)

    @property
    def lines(self) -> tuple[Line, ...]:
        """One line per subject and attack."""
        rows: dict[tuple[str, str], list[CellSpec]] = {}
        for cell in self.plan.cells:
            rows.setdefault((cell.subject.name, _name_row(cell)), []).append(cell)
        return tuple(Line.of(cells, self.prices) for cells in rows.values())

    @property
    def seconds(self) -> float:
        """Wall time of the whole run when no attack stops early or is tried again."""
        return self.overhead.seconds + self._wall_seconds([_cost(cell, self.prices)[0] for cell in self.plan.cells])

    @property
    def at_most(self) -> float:
        """Wall time of the whole run when every retry is used."""
        return self.overhead.seconds + self._wall_seconds([_cost(cell, self.prices)[1] for cell in self.plan.cells])

    @property
    def mb(self) -> float:
        """Memory of all workers, each with one of the largest cells."""
        largest = sorted((self.prices.prices[cell.label].mb for cell in self.plan.cells), reverse=True)
        return self.workers * self.prices.base_mb + sum(largest[: self.workers])

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "cells": [{"key": cell.key, "label": cell.label} for cell in self.plan.cells],
            "lines": [asdict(line) for line in self.lines],
            "totals": {
                "attack_cells": len(self.plan.attacks),
                "accuracy_cells": len(self.plan.trainings),
                "workers": self.workers,
                "seconds": self.seconds,
                "at_most_seconds": self.at_most,
                "overhead": self.overhead.to_dict(),
                "mb": self.mb,
                "kinds": self.prices.groups,
                "probe_seconds": self.prices.seconds,
                "slowdown": self.prices.slowdown,
            },
            "budget": self.budget,
            "planned": None if self.planned is None else self.planned.model_dump(mode="json"),
            "not_run": [cell.label for cell in self.plan.left_out],
        }

    def _wall_seconds(self, costs: Sequence[float]) -> float:
        # More processes than cores share the cores; no cell is split.
        return max(sum(costs) / min(self.workers, os.cpu_count() or 1), max(costs, default=0.0))


def _cost(cell: CellSpec, prices: PriceList) -> tuple[float, float]:
    """Seconds of a cell as it is planned: usually, and at most."""
    price, limit = prices.prices[cell.label], _limit(cell)
    return price.seconds(limit), price.at_most(limit)


def _limit(cell: CellSpec) -> PlannedAttack | None:
    return cell.limit if cell.kind == "attack" else None


def _name_row(cell: CellSpec) -> str:
    return cell.attack if cell.kind == "attack" else TRAINING


def _collect_notes(prices: Sequence[Price]) -> tuple[str, ...]:
    """Why cells cost nothing, and where a price is not a measurement; each reason once, with how often."""
    texts = [f"{price.status}: {price.note}" if not price.costs else price.note for price in prices if price.note]
    return tuple(
        text if count == len(prices) else f"{count} of {len(prices)} cells {text}"
        for text, count in Counter(texts).items()
    )
