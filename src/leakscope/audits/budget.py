"""Splits a length of time over the cells of a plan: who runs, for how many steps, how often.

Closed forms come first: they are cheap and exact. Then every attack gets its fewest sensible
steps, undefended cells before defended ones; then the accuracy cells, within a third of the time;
then all attacks get more time alike, until they have their full length, and what is left goes into
restarts. An attack has one length in all its cells, so that they stay comparable.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from leakscope.audits.config import Planned, PlannedAttack
from leakscope.audits.durations import duration
from leakscope.audits.execute import FEWEST_STEPS
from leakscope.audits.plan import Plan
from leakscope.audits.price import Price, PriceList, price_cells
from leakscope.audits.specs import NONE, AttackCellSpec, CellSpec, TrainingCellSpec
from leakscope.errors import UsageError
from leakscope.registry import attack_from_spec, parse_spec

# More starts than this hardly find a better one.
MOST_RESTARTS = 8
_FOR_ACCURACY = 1 / 3
# Of the budget: what sample runs may use, and what is kept for a machine slower than it was then.
_FOR_SAMPLES, _FOR_SURPRISES = 0.25, 0.1
# Workers start, a summary and a page are written.
_AROUND_SECONDS = 3.0
# Before the sample runs, where that was not measured; and how much more than the least a refusal asks for.
_CHECK_SECONDS, _MARGIN = 3.0, 1.25
# Halvings of an interval of seconds: finer than any step.
_HALVINGS = 50

Lengths = dict[str, PlannedAttack]
AnyCell = TypeVar("AnyCell", AttackCellSpec, TrainingCellSpec)


class TooLittleTimeError(UsageError):
    """Not even the cheapest attack fits; it `needed` so many seconds."""

    def __init__(self, message: str, *, needed: float) -> None:
        super().__init__(message)
        self.needed = needed


def plan_within(budget: float, plan: Plan, *, workers: int, began: float | None = None) -> tuple[PriceList, Planned]:
    """Price `plan`, and split over it what is left of `budget` seconds since `began`."""
    before = _CHECK_SECONDS if began is None else time.monotonic() - began
    _check_overhead(budget, before)
    prices = price_cells(plan, workers=workers, seconds=_FOR_SAMPLES * budget)
    around = prices.slowdown * _AROUND_SECONDS
    left = (budget - before - prices.seconds - around) * (1 - _FOR_SURPRISES)
    try:
        # More processes than cores share the cores.
        return prices, afford(plan, prices, seconds=left, workers=min(workers, os.cpu_count() or 1))
    except TooLittleTimeError as refusal:
        rest = before + around + refusal.needed / (1 - _FOR_SURPRISES)
        # With more time the sample runs take more as well, up to their share.
        least = max(rest + prices.seconds, rest / (1 - _FOR_SAMPLES))
        raise UsageError(
            f"the budget of {duration(budget)} leaves {duration(max(0.0, left))} for attacks: the self-check takes "
            f"{duration(before)}, sample runs took {duration(prices.seconds)}, starting and reporting take "
            f"{duration(around)}, and {refusal}; give {duration(math.ceil(_MARGIN * least))} or more, or audit a "
            "smaller network or fewer victims"
        ) from refusal


def _check_overhead(budget: float, before: float) -> None:
    """Refuse a budget that is over before the first attack, and so before any sample run."""
    # Processes start twice, for the sample runs and for the run.
    around = 2 * _AROUND_SECONDS
    if budget < before + around:
        raise UsageError(
            f"the budget of {duration(budget)} is over before any attack begins: the self-check takes "
            f"{duration(before)}, and starting, sampling and reporting at least {duration(around)}; "
            f"give about {duration(math.ceil(2 * (before + around)))} or more"
        )


@dataclass(frozen=True)
class _Room:
    """Wall time on a number of processes, and what cells cost in it."""

    seconds: float
    workers: int
    prices: PriceList

    def price(self, cell: CellSpec) -> Price:
        return self.prices.prices[cell.label]

    def cost(self, cell: CellSpec, lengths: Lengths) -> float:
        """Seconds at most: a retry must not break the budget."""
        return self.price(cell).at_most(lengths.get(cell.attack) if cell.kind == "attack" else None)

    def holds(self, cells: Iterable[CellSpec], lengths: Lengths) -> bool:
        """Whether all cells are done in time; none may be longer than it."""
        costs = [self.cost(cell, lengths) for cell in cells]
        return max(costs, default=0.0) <= self.seconds and sum(costs) <= self.seconds * self.workers

    def keep(self, cells: Iterable[AnyCell], lengths: Lengths, *, total: float) -> list[AnyCell]:
        """As many as fit into `total` seconds of work, in order; an expensive one makes way for a cheaper one."""
        kept: list[AnyCell] = []
        for cell in cells:
            cost = self.cost(cell, lengths)
            if cost <= min(total, self.seconds):
                kept.append(cell)
                total -= cost
        return kept


def afford(plan: Plan, prices: PriceList, *, seconds: float, workers: int) -> Planned:
    """Choose what can be done within `seconds` of wall time.

    Raises:
        TooLittleTimeError: not even the cheapest attack fits.
    """
    room = _Room(max(0.0, seconds), workers, prices)
    full = _find_lengths(plan.attacks)
    least = {spec: length.model_copy(update={"steps": min(length.of, FEWEST_STEPS)}) for spec, length in full.items()}
    if not room.holds(plan.attacks, least):
        least = {spec: length.model_copy(update={"restarts": length.restarts and 1}) for spec, length in least.items()}
    attacks = _keep_attacks(plan, room, least)
    free = room.seconds * workers - sum(room.cost(cell, least) for cell in attacks)
    third = _FOR_ACCURACY * room.seconds
    short = [cell for cell in plan.trainings if room.cost(cell, {}) <= third]
    trainings = room.keep(short, {}, total=min(third * workers, free))
    running = [*attacks, *trainings]
    if len(attacks) < len(plan.attacks):
        full = {cell.attack: full[cell.attack] for cell in attacks if cell.attack in full}
    if room.holds(running, full):
        lengths = _add_restarts(running, full, room)
    else:
        lengths = _add_steps(running, {spec: least[spec] for spec in full}, room)
    labels = {cell.label for cell in running}
    return Planned(attacks=lengths, left_out=tuple(cell.label for cell in plan.cells if cell.label not in labels))


def _find_lengths(cells: Sequence[AttackCellSpec]) -> Lengths:
    """Every attack with steps at its own length; closed forms have none."""
    efforts = {spec: attack_from_spec(spec).effort for spec in dict.fromkeys(cell.attack for cell in cells)}
    return {
        spec: PlannedAttack(steps=own.steps, of=own.steps, restarts=own.restarts)
        for spec, own in efforts.items()
        if own.steps is not None
    }


def _keep_attacks(plan: Plan, room: _Room, least: Lengths) -> list[AttackCellSpec]:
    """The attacks there is time for at their fewest steps; refuse a budget in which none does any work."""
    urgent = sorted(plan.attacks, key=lambda cell: (room.price(cell).effort.steps is not None, cell.defence != NONE))
    kept = room.keep(urgent, least, total=room.seconds * room.workers)
    able = [cell for cell in plan.attacks if room.price(cell).costs]
    if not able or any(room.price(cell).costs for cell in kept):
        return kept
    cheapest = min(able, key=lambda cell: room.cost(cell, least))
    needed, note = room.cost(cheapest, least), room.price(cheapest).note
    why = f" ({note})" if note else ""
    raise TooLittleTimeError(
        f"the cheapest cell ({cheapest.label}) needs {duration(needed)} even at its fewest steps{why}", needed=needed
    )


def _add_steps(running: Sequence[CellSpec], least: Lengths, room: _Room) -> Lengths:
    """Raise the time that the longest cell of each attack may take, for all attacks alike, as far as it fits."""
    most = {spec: length.model_copy(update={"steps": length.of}) for spec, length in least.items()}
    ends: dict[str, list[tuple[float, float]]] = {spec: [] for spec in least}
    for cell in running:
        if cell.kind == "attack" and cell.attack in ends:
            ends[cell.attack].append((room.cost(cell, least), room.cost(cell, most)))

    def lengths_within(seconds: float) -> Lengths:
        return {spec: _lengthen(least[spec], ends[spec], seconds) for spec in least}

    low, high = 0.0, room.seconds
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if room.holds(running, lengths_within(middle)) else (low, middle)
    return lengths_within(low)


def _lengthen(fewest: PlannedAttack, ends: Sequence[tuple[float, float]], seconds: float) -> PlannedAttack:
    """As many steps as fit into `seconds` for every cell, which costs its `ends` at the fewest and at all steps."""
    share = min([1.0, *((seconds - low) / (high - low) for low, high in ends if high > max(low, seconds))])
    steps = fewest.steps + max(0.0, share) * (fewest.of - fewest.steps)
    # Rounding errors must not cost a step.
    return fewest.model_copy(update={"steps": math.floor(steps + 1e-9)})


def _add_restarts(running: Sequence[CellSpec], full: Lengths, room: _Room) -> Lengths:
    """One more start for each attack in turn, while there is time; a number the user chose stays."""
    lengths = dict(full)
    free = [spec for spec, length in full.items() if length.restarts and "restarts" not in parse_spec(spec)[1]]
    while free:
        for spec in list(free):
            more = lengths[spec].model_copy(update={"restarts": (lengths[spec].restarts or 1) + 1})
            if (more.restarts or 1) <= MOST_RESTARTS and room.holds(running, {**lengths, spec: more}):
                lengths[spec] = more
            else:
                free.remove(spec)
    return lengths
