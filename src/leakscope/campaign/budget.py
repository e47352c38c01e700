"""Splits a length of time over the cells of a plan: who runs, for how many steps, how often.

Closed forms come first: they are cheap and exact. Then every attack gets its fewest sensible
steps, undefended cells before defended ones; then the accuracy cells, within a third of the time;
then time is poured into the attacks until each cell has the same or its full length, and what is
left goes into restarts. An attack has one length in all its cells, so that they stay comparable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from leakscope.campaign.config import Planned, PlannedAttack
from leakscope.campaign.durations import duration
from leakscope.campaign.plan import NONE, Plan
from leakscope.campaign.price import Price, Quote
from leakscope.campaign.stepped import FEWEST_STEPS, has_restarts, length_of
from leakscope.errors import UsageError
from leakscope.registry import attack_from_spec, parse_spec
from leakscope.sweep import Cell

# More starts than this hardly find a better one.
MOST_RESTARTS = 8
_FOR_ACCURACY = 1 / 3
_HALVINGS = 60

Lengths = dict[str, PlannedAttack]
Fits = Callable[[Lengths], bool]


class TooLittleTimeError(UsageError):
    """Not even the cheapest attack fits; it `needed` so many seconds."""

    def __init__(self, message: str, *, needed: float) -> None:
        super().__init__(message)
        self.needed = needed


@dataclass(frozen=True)
class _Work:
    """What cells cost depends on: the attack, "" for accuracy, and the price of their kind."""

    attack: str
    price: Price

    def cost(self, lengths: Lengths) -> float:
        """Seconds at most: a retry must not break the budget."""
        length = lengths.get(self.attack)
        if length is None:
            return self.price.at_most()
        return self.price.at_most(steps=length.steps, of=length.of, restarts=length.restarts)


@dataclass(frozen=True)
class _Room:
    """Wall time on a number of processes."""

    seconds: float
    workers: int

    def holds(self, costs: Iterable[tuple[float, int]]) -> bool:
        """Whether cells, as pairs of seconds and how many, are done in time; none may be longer than it."""
        total = 0.0
        for cost, count in costs:
            total += cost * count
            if cost > self.seconds:
                return False
        return total <= self.seconds * self.workers


def afford(plan: Plan, prices: Quote, *, seconds: float, workers: int) -> Planned:
    """Choose what can be done within `seconds` of wall time.

    Where nothing of known price fits, cells whose price nobody knows are planned at their fewest
    steps: the run goes as far as its time does.

    Raises:
        TooLittleTimeError: not even the cheapest attack fits.
    """
    work = {cell.key: _Work(str(cell.spec.get("attack", "")), prices.prices[cell.key]) for cell in plan.cells}
    seconds = max(0.0, seconds)
    room = _Room(seconds, workers)
    full = _full_lengths(plan)
    shortest = {spec: _least(length) for spec, length in full.items()}
    if not room.holds((work[cell.key].cost(shortest), 1) for cell in plan.attacks):
        shortest = {spec: _once(length) for spec, length in shortest.items()}
    costs = {key: one.cost(shortest) for key, one in work.items()}
    urgent = sorted(plan.attacks, key=lambda cell: _urgency(cell, work[cell.key]))
    kept = _keep(urgent, costs, room)
    if seconds > 0 and not any(work[cell.key].price.costs for cell in kept):
        kept += [cell for cell in urgent if work[cell.key].price.blind]
    _insist(plan, kept, work=work, costs=costs)
    spent = sum(costs[cell.key] for cell in kept) / workers
    trained = _keep(plan.utilities, costs, _Room(min(seconds * _FOR_ACCURACY, seconds - spent), workers))
    bundles = Counter(work[cell.key] for cell in (*kept, *trained))
    chosen = full if len(kept) == len(plan.attacks) else {spec: full[spec] for spec in _used(kept) if spec in full}

    def fits(lengths: Lengths) -> bool:
        return room.holds((one.cost(lengths), count) for one, count in bundles.items())

    lengths = _repeated(chosen, fits) if fits(chosen) else _poured(bundles, shortest, chosen, fits)
    running = {cell.key for cell in (*kept, *trained)}
    return Planned(attacks=lengths, left_out=tuple(cell.label for cell in plan.cells if cell.key not in running))


def _full_lengths(plan: Plan) -> Lengths:
    """Every attack with steps at its own length; closed forms have none."""
    found: Lengths = {}
    for spec in _used(plan.attacks):
        attack = attack_from_spec(spec)
        length = length_of(attack)
        if length.steps is not None:
            restarts = length.restarts if has_restarts(attack) else None
            found[spec] = PlannedAttack(steps=length.steps, of=length.steps, restarts=restarts)
    return found


def _used(cells: Iterable[Cell]) -> list[str]:
    return list(dict.fromkeys(str(cell.spec["attack"]) for cell in cells))


def _least(length: PlannedAttack) -> PlannedAttack:
    return length.model_copy(update={"steps": min(length.of, FEWEST_STEPS)})


def _once(length: PlannedAttack) -> PlannedAttack:
    return length.model_copy(update={"restarts": None if length.restarts is None else 1})


def _urgency(cell: Cell, work: _Work) -> tuple[bool, bool]:
    return work.price.length.steps is not None, cell.spec["defence"] != NONE


def _keep(cells: Sequence[Cell], costs: dict[str, float], room: _Room) -> list[Cell]:
    """As many as fit, in order; a dear one that does not fit makes way for a cheaper one."""
    kept: list[Cell] = []
    total = 0.0
    for cell in cells:
        cost = costs[cell.key]
        if cost <= room.seconds and total + cost <= room.seconds * room.workers:
            kept.append(cell)
            total += cost
    return kept


def _poured(bundles: Counter[_Work], least: Lengths, full: Lengths, fits: Fits) -> Lengths:
    """Raise the time that each cell may take, for all attacks alike, as far as it fits."""

    def at(seconds: float) -> Lengths:
        return {spec: _longest(spec, bundles, least[spec], seconds) for spec in full}

    low, high = 0.0, max(one.cost(full) for one in bundles)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(at(middle)) else (low, middle)
    return at(low)


def _longest(spec: str, bundles: Counter[_Work], length: PlannedAttack, seconds: float) -> PlannedAttack:
    """The most steps at which the cells of an attack take `seconds` on average."""
    own = [(one, count) for one, count in bundles.items() if one.attack == spec]
    allowed = seconds * sum(count for _, count in own)
    few, many = length.steps, length.of
    while few < many:
        middle = (few + many + 1) // 2
        lengths = {spec: length.model_copy(update={"steps": middle})}
        cost = sum(one.cost(lengths) * count for one, count in own)
        few, many = (middle, many) if cost <= allowed else (few, middle - 1)
    return length.model_copy(update={"steps": few})


def _repeated(full: Lengths, fits: Fits) -> Lengths:
    """One more start for each attack in turn, while there is time; a number the user chose stays."""
    lengths = dict(full)
    free = [spec for spec, length in full.items() if length.restarts and "restarts" not in parse_spec(spec)[1]]
    while free:
        for spec in list(free):
            more = lengths[spec].model_copy(update={"restarts": (lengths[spec].restarts or 1) + 1})
            if (more.restarts or 1) <= MOST_RESTARTS and fits({**lengths, spec: more}):
                lengths[spec] = more
            else:
                free.remove(spec)
    return lengths


def _insist(plan: Plan, kept: Sequence[Cell], *, work: dict[str, _Work], costs: dict[str, float]) -> None:
    """Refuse a budget in which no attack does any work."""
    able = [cell for cell in plan.attacks if work[cell.key].price.costs]
    if not able or any(work[cell.key].price.costs for cell in kept):
        return
    known = [cell for cell in able if not work[cell.key].price.blind]
    if not known:
        # What matters then is that there is any time at all.
        raise TooLittleTimeError("no attack could be probed", needed=0.0)
    cheapest = min(known, key=lambda cell: costs[cell.key])
    needed, note = costs[cheapest.key], work[cheapest.key].price.note
    why = f" ({note})" if note else ""
    raise TooLittleTimeError(
        f"the cheapest cell ({cheapest.label}) needs {duration(needed)} even at its fewest steps{why}", needed=needed
    )
