"""What cells cost: one of each that cost the same is probed, in processes like those of the run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from leakscope.attack import Effort
from leakscope.audits.execute import scaled
from leakscope.audits.plan import Plan
from leakscope.audits.probe import STEPS, Sample, attack_as_run, probe
from leakscope.audits.specs import NONE, CellSpec, SubjectSpec
from leakscope.audits.subject import Subject
from leakscope.registry import defence_from_spec, parse_spec, split_chain
from leakscope.report.schema import PlannedAttack
from leakscope.runner import Cell, CellOutcome, run
from leakscope.runner.cells import canonical_json
from leakscope.types import Status
from leakscope.version import __version__

# A probe takes a second or two; one that takes this long is given up. With less time for all of
# them it is given up earlier, but not before it can have set up what every cell uses.
PROBE_SECONDS, _LEAST_PROBE_SECONDS = 30.0, 5.0


@dataclass(frozen=True)
class PriceGroup:
    """Cells that cost the same; `sample` stands for them."""

    sample: Sample
    effort: Effort
    cells: list[CellSpec] = field(default_factory=list)

    @property
    def starts(self) -> int:
        """Runs that one cell holds: victims times restarts."""
        cell = self.sample.cell
        return cell.victims * (self.effort.restarts or 1) if cell.kind == "attack" else 1


@dataclass(frozen=True)
class Price:
    """What one cell costs: seconds before the first step, per step of all its runs, and memory.

    `refused` and `failed` cells cost nothing: the first are outcomes known beforehand, the second would
    end in an error. `assumed` prices were not measured; the note says where they come from. `blind` ones
    were not probed, and nothing like them was: the number tells nothing of the cell.
    """

    status: Literal["measured", "assumed", "refused", "failed"]
    effort: Effort
    fixed: float = 0.0
    step: float = 0.0
    mb: float = 0.0
    note: str = ""
    blind: bool = False

    @property
    def costs(self) -> bool:
        """Whether the cell does any work."""
        return self.status in ("measured", "assumed")

    def seconds(self, limit: PlannedAttack | None = None, *, attempts: int = 1) -> float:
        """Seconds of a cell at full length or cut to `limit`, without stopping early."""
        steps, starts = self.effort.steps or 0, 1.0
        if limit is not None and steps:
            steps = scaled(steps, steps=limit.steps, of=limit.of)
        if limit is not None and limit.restarts is not None:
            starts = limit.restarts / (self.effort.restarts or 1)
        return self.fixed + self.step * steps * starts * attempts

    def at_most(self, limit: PlannedAttack | None = None) -> float:
        """Seconds when every retry is used."""
        return self.seconds(limit, attempts=self.effort.attempts)


@dataclass(frozen=True)
class PriceList:
    """The price of every cell by its key; `base_mb` is what a worker process needs by itself.

    `slowdown` is wall time over processor time while probing, and part of every price.
    """

    prices: Mapping[str, Price]
    groups: int
    base_mb: float
    probe_seconds: float
    slowdown: float = 1.0


def price_cells(plan: Plan, *, workers: int, seconds: float | None = None) -> PriceList:
    """Probe each group of cells once, in the order in which a budget is spent on them.

    No probe begins after `seconds`, and none lasts longer; groups not reached are priced like the nearest one.
    """
    began = time.monotonic()
    groups = sorted(group_cells(plan), key=_urgency)
    patience = PROBE_SECONDS if seconds is None else min(PROBE_SECONDS, max(_LEAST_PROBE_SECONDS, seconds))
    samples = [
        Cell.of(group.sample.model_dump(mode="json"), code_version=__version__, label=group.sample.cell.label)
        for group in groups
    ]
    with tempfile.TemporaryDirectory(prefix="leakscope-probe-") as folder:
        workers = min(workers, max(1, len(groups)))
        found = run(samples, probe, Path(folder) / "run", workers=workers, timeout=patience, seconds=seconds)
    slowdown = _slowdown(found.finished)
    own = [
        None if outcome is None else _price(group, outcome, slowdown, patience=patience)
        for group, outcome in zip(groups, found.outcomes, strict=True)
    ]
    full = [_nearest(group, groups, own) if price is None else price for group, price in zip(groups, own, strict=True)]
    base = max((outcome.measured.get("base_mb", 0.0) for outcome in found.finished), default=0.0)
    prices = {cell.key: price for group, price in zip(groups, full, strict=True) for cell in group.cells}
    return PriceList(prices, len(groups), base, time.monotonic() - began, slowdown)


def wall_seconds(costs: Sequence[float], *, workers: int) -> float:
    """Time until `workers` processes are through; never less than the longest cell."""
    return max(sum(costs) / workers, max(costs, default=0.0))


def group_cells(plan: Plan) -> list[PriceGroup]:
    """Cells of the same network, input shape, attack, local training and scenario, in the order in which they run."""
    found: dict[str, PriceGroup] = {}
    subjects = {cell.subject.model_dump_json(): cell.subject for cell in plan.cells}
    # A folder of pictures is slow to count: once for each subject.
    trained = [cell.subject for cell in plan.trainings]
    shapes = {name: _data_shape(subject, sizes=subject in trained) for name, subject in subjects.items()}
    for cell in plan.cells:
        sample = _sample(cell, shapes[cell.subject.model_dump_json()])
        name = canonical_json(_what_costs(sample))
        if name not in found:
            found[name] = PriceGroup(sample, _effort(sample.cell))
        found[name].cells.append(cell)
    return list(found.values())


def _data_shape(subject: SubjectSpec, *, sizes: bool) -> dict[str, object]:
    opened = Subject(subject)
    train, test = (len(opened.open(split)) if sizes else 0 for split in ("train", "test"))
    return {"shape": opened.input_shape, "classes": opened.num_classes, "train_size": train, "test_size": test}


def _sample(cell: CellSpec, shape: Mapping[str, object]) -> Sample:
    content = cell.model_dump()
    if cell.kind == "attack" and not (cell.adaptive or _changes_network(cell.defence)):
        content["defence"] = NONE
    return Sample.model_validate({"cell": content, **shape})


def _changes_network(defence: str) -> bool:
    built = defence_from_spec(defence)
    return built is not None and built.changes_network


def _what_costs(sample: Sample) -> dict[str, object]:
    """What the cost depends on: not the seed, nor which pictures there are, nor how much a defence prunes."""
    cell = sample.cell
    unlike = {"subject", "seed", "keep_images", "limit", "defence"}
    network = cell.subject.model_dump(include={"model", "options", "weights", "mode", "classes"})
    defences = [parse_spec(part)[0] for part in split_chain(cell.defence)] if cell.kind == "attack" else [cell.defence]
    sizes = sample.model_dump(
        mode="json", exclude={"cell"} if cell.kind == "utility" else {"cell", "train_size", "test_size"}
    )
    return {**cell.model_dump(mode="json", exclude=unlike), **sizes, "network": network, "defences": defences}


def _effort(cell: CellSpec) -> Effort:
    return attack_as_run(cell).effort if cell.kind == "attack" else Effort(steps=cell.training.rounds)


def _urgency(group: PriceGroup) -> tuple[bool, bool, bool]:
    """Closed forms before other attacks, undefended before defended; training last."""
    cell = group.sample.cell
    return cell.kind != "attack", group.effort.steps is not None, cell.defence != NONE


def _slowdown(outcomes: Sequence[CellOutcome]) -> float:
    """How much longer than its own work a process takes here: other programs, or more workers than cores."""
    wall, cpu = (sum(outcome.measured.get(name, 0.0) for outcome in outcomes) for name in ("wall", "cpu"))
    return max(1.0, wall / cpu) if cpu > 0 else 1.0


def _price(group: PriceGroup, outcome: CellOutcome, slowdown: float = 1.0, *, patience: float = PROBE_SECONDS) -> Price:
    """The price of a probed group in wall time."""
    if outcome.status is Status.OK:
        fixed, step = (slowdown * outcome.measured[name] for name in ("fixed", "step"))
        return Price("measured", group.effort, fixed, step, outcome.measured["mb"], note=outcome.record["how"])
    if outcome.status is Status.TIMEOUT:
        return _assumed(group, f"not measured: the probe took more than {patience:g} s", seconds=patience)
    reason = outcome.record.get("message") or outcome.record.get("error") or str(outcome.status)
    return Price("refused" if outcome.status is Status.REFUSED else "failed", group.effort, note=str(reason))


def _assumed(group: PriceGroup, why: str, *, seconds: float, blind: bool = False) -> Price:
    """A price for what could not be measured, as if its probe had just ended after `seconds`."""
    if group.effort.steps is None:
        note = f"{why}; priced at {seconds:g} s a victim"
        return Price("assumed", group.effort, fixed=seconds * group.starts, note=note, blind=blind)
    step = seconds / STEPS
    note = f"{why}; priced at {step:.3g} s a step and victim"
    return Price("assumed", group.effort, step=step * group.starts, note=note, blind=blind)


def _nearest(mine: PriceGroup, groups: Sequence[PriceGroup], prices: Sequence[Price | None]) -> Price:
    """The price of the most similar measured group, for one the probe had no time for."""
    known = [
        (group, price)
        for group, price in zip(groups, prices, strict=True)
        if price is not None
        and price.costs
        and group.sample.cell.kind == mine.sample.cell.kind
        # A closed form tells nothing of what a step costs.
        and (group.effort.steps is None) == (mine.effort.steps is None)
    ]
    if not known:
        return _assumed(mine, "not probed for lack of time", seconds=PROBE_SECONDS, blind=True)
    group, price = max(known, key=lambda pair: _likeness(mine, pair[0]))
    share = mine.starts / group.starts
    note = f"not probed for lack of time; priced like {group.sample.cell.label}"
    return Price("assumed", mine.effort, price.fixed * share, price.step * share, price.mb, note=note)


def _likeness(one: PriceGroup, other: PriceGroup) -> tuple[bool, ...]:
    first, second = _what_costs(one.sample), _what_costs(other.sample)
    same = [first.get(name) == second.get(name) for name in ("network", "attack", "adaptive", "scenario")]
    # A network of the same size says more than the same attack on another one.
    return (same[0] and same[1], same[0], *same[1:])
