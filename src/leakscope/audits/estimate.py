"""The estimate before a run, as lines and totals: what `leakscope audit --dry-run` prints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from leakscope.audits.budget import plan_within
from leakscope.audits.config import Config, Planned
from leakscope.audits.plan import Plan, fitted, make_plan
from leakscope.audits.price import Price, price_cells, wall_seconds
from leakscope.audits.specs import CellSpec
from leakscope.errors import UsageError

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


@dataclass(frozen=True)
class Bill:
    """What a configuration costs before it is run; `planned` is what a budget would make of it."""

    plan: Plan
    lines: tuple[Line, ...]
    workers: int
    seconds: float
    at_most: float
    mb: float
    groups: int
    probe_seconds: float
    slowdown: float = 1.0
    budget: float | None = None
    planned: Planned | None = None

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
                "mb": self.mb,
                "kinds": self.groups,
                "probe_seconds": self.probe_seconds,
                "slowdown": self.slowdown,
            },
            "budget": self.budget,
            "planned": None if self.planned is None else self.planned.model_dump(mode="json"),
            "not_run": [cell.label for cell in self.plan.left_out],
        }


def price_campaign(config: Config, *, show_images: bool | None = None, workers: int | None = None) -> Bill:
    """Probe what `config` describes and say what it would take; nothing is written and no private example attacked."""
    whole = make_plan(config.model_copy(update={"planned": None}), show_images=show_images)
    processes = count_workers(config, whole, workers)
    planned = config.planned
    if config.budget is not None and planned is None:
        prices, planned = plan_within(config.budget, whole, workers=processes)
    else:
        prices = price_cells(whole, workers=processes)
    plan = whole if planned is None else fitted(whole, planned)
    # A shortened cell has a key of its own; its label is that of the cell that was priced.
    by_label = {cell.label: prices.prices[cell.key] for cell in whole.cells}
    cores = min(processes, os.cpu_count() or 1)
    costs = [_cost(cell, by_label[cell.label]) for cell in plan.cells]
    largest = sorted((by_label[cell.label].mb for cell in plan.cells), reverse=True)[:processes]
    return Bill(
        plan,
        _lines(plan, by_label),
        processes,
        seconds=wall_seconds([usual for usual, _ in costs], workers=cores),
        at_most=wall_seconds([most for _, most in costs], workers=cores),
        mb=processes * prices.base_mb + sum(largest),
        groups=prices.groups,
        probe_seconds=prices.probe_seconds,
        slowdown=prices.slowdown,
        budget=config.budget,
        planned=planned,
    )


def count_workers(config: Config, plan: Plan, workers: int | None = None) -> int:
    """Processes a run uses: as told, or one per core; never more than it has cells."""
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be ≥ 1, got {workers}; leave it out for one per core")
    return min(workers or config.workers or os.cpu_count() or 1, max(1, len(plan.cells)))


def _cost(cell: CellSpec, price: Price) -> tuple[float, float]:
    """Seconds of a cell: usually, and at most."""
    limit = cell.limit if cell.kind == "attack" else None
    return price.seconds(limit), price.at_most(limit)


def _lines(plan: Plan, prices: dict[str, Price]) -> tuple[Line, ...]:
    rows: dict[tuple[str, str], list[CellSpec]] = {}
    for cell in plan.cells:
        name = cell.attack if cell.kind == "attack" else TRAINING
        rows.setdefault((cell.subject.name, name), []).append(cell)
    return tuple(_line(*names, cells=cells, prices=prices) for names, cells in rows.items())


def _line(subject: str, attack: str, *, cells: Sequence[CellSpec], prices: dict[str, Price]) -> Line:
    found = [prices[cell.label] for cell in cells]
    costs = [_cost(cell, price) for cell, price in zip(cells, found, strict=True)]
    first, effort = cells[0], found[0].effort
    limit = first.limit if first.kind == "attack" else None
    total = sum(usual for usual, _ in costs)
    return Line(
        subject,
        attack,
        len(cells),
        effort.steps,
        (limit.restarts if limit else None) or effort.restarts or 1,
        seconds_per_cell=total / len(cells),
        seconds=total,
        at_most=sum(most for _, most in costs),
        mb=max(price.mb for price in found),
        notes=_notes(found),
        planned_steps=limit.steps if limit else effort.steps,
    )


def _notes(prices: Sequence[Price]) -> tuple[str, ...]:
    """Why cells cost nothing, and where a price is not a measurement; each reason once, with how often."""
    texts = [f"{price.status}: {price.note}" if not price.costs else price.note for price in prices if price.note]
    return tuple(
        text if texts.count(text) == len(prices) else f"{texts.count(text)} of {len(prices)} cells {text}"
        for text in dict.fromkeys(texts)
    )
