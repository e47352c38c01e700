"""What cells cost: one of all that cost the same runs for a few steps, in processes like those of the run."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from leakscope.attack import Effort
from leakscope.audits.config import PlannedAttack
from leakscope.audits.execute import scale_steps
from leakscope.audits.plan import Plan
from leakscope.audits.sample_run import STEPS, Sample, adapt_attack, run_sample
from leakscope.audits.specs import NONE, CellSpec
from leakscope.audits.subject import Subject
from leakscope.registry import defence_from_spec, parse_spec, split_chain
from leakscope.runner import Cell, CellOutcome, run
from leakscope.runner.cells import canonical_json
from leakscope.types import Status
from leakscope.version import __version__

# A sample run takes a second or two; one that takes this long is given up. With less time for all of
# them it is given up earlier, but not before it can have set up what every cell uses.
SAMPLE_SECONDS, _LEAST_SAMPLE_SECONDS = 30.0, 5.0


@dataclass(frozen=True)
class Price:
    """What one cell costs: seconds before the first step, per step of all its runs, and memory.

    `refused` and `failed` cells cost nothing: the first are outcomes known beforehand, the second would
    end in an error. `assumed` prices were not measured; the note says where they come from.
    """

    status: Literal["measured", "assumed", "refused", "failed"]
    effort: Effort
    fixed: float = 0.0
    step: float = 0.0
    mb: float = 0.0
    note: str = ""

    @property
    def costs(self) -> bool:
        """Whether the cell does any work."""
        return self.status in ("measured", "assumed")

    def seconds(self, limit: PlannedAttack | None = None, *, attempts: int = 1) -> float:
        """Seconds of a cell at full length or cut to `limit`, without stopping early."""
        steps, starts = self.effort.steps or 0, 1.0
        if limit is not None and steps:
            steps = scale_steps(steps, steps=limit.steps, of=limit.of)
        if limit is not None and limit.restarts is not None:
            starts = limit.restarts / (self.effort.restarts or 1)
        return self.fixed + self.step * steps * starts * attempts

    def at_most(self, limit: PlannedAttack | None = None) -> float:
        """Seconds when every retry is used."""
        return self.seconds(limit, attempts=self.effort.attempts)


@dataclass(frozen=True)
class PriceList:
    """The price of every cell by its label, which a shortened cell shares with the whole one.

    `groups` were sampled in `seconds`; `base_mb` is what a worker process needs by itself. `slowdown` is wall time over
    processor time meanwhile, and part of every price. `starting` is how long the processes took to be ready.
    """

    prices: Mapping[str, Price]
    groups: int
    base_mb: float
    seconds: float
    slowdown: float = 1.0
    starting: float = 0.0


@dataclass(frozen=True)
class CellGroup:
    """Cells that cost the same; `sample` stands for them."""

    sample: Sample
    effort: Effort
    cells: list[CellSpec] = field(default_factory=list)

    @property
    def starts(self) -> int:
        """Runs that one cell holds: victims, and one for the prior alone, times restarts."""
        cell = self.sample.cell
        return (cell.victims + cell.prior_alone) * (self.effort.restarts or 1) if cell.kind == "attack" else 1

    @property
    def sort(self) -> tuple[bool, bool]:
        """Training or attack, with steps or a closed form: across these, one price tells nothing of another."""
        return self.sample.cell.kind != "attack", self.effort.steps is not None


def group_cells(plan: Plan) -> list[CellGroup]:
    """Cells of the same network, input shape, attack, local training and scenario, in the order in which they run."""
    found: dict[str, CellGroup] = {}
    trained = {cell.subject.name for cell in plan.trainings}
    # A folder of pictures is slow to count: once for each subject.
    shapes = {
        subject.name: _describe_data(Subject(subject, plan.inputs), sizes=subject.name in trained)
        for subject in {cell.subject.name: cell.subject for cell in plan.cells}.values()
    }
    for cell in plan.cells:
        # A defence that the attacker does not know changes the price only through the network.
        hidden = cell.kind == "attack" and not (cell.adaptive or _changes_network(cell.defence))
        content = cell.model_dump() | ({"defence": NONE} if hidden else {})
        sample = Sample.model_validate({"cell": content, **shapes[cell.subject.name]})
        effort = adapt_attack(cell).effort if cell.kind == "attack" else Effort(steps=cell.training.rounds)
        found.setdefault(canonical_json(what_costs(sample)), CellGroup(sample, effort)).cells.append(cell)
    return list(found.values())


def _describe_data(subject: Subject, *, sizes: bool) -> dict[str, object]:
    train, test = (len(subject.open(split)) if sizes else 0 for split in ("train", "test"))
    return {"shape": subject.input_shape, "classes": subject.num_classes, "train_size": train, "test_size": test}


def _changes_network(defence: str) -> bool:
    built = defence_from_spec(defence)
    return built is not None and built.changes_network


def what_costs(sample: Sample) -> dict[str, object]:
    """What the cost depends on: not the seed, nor which pictures there are, nor how much a defence prunes."""
    cell = sample.cell
    own = cell.model_dump(mode="json", exclude={"subject", "seed", "keep_images", "limit", "defence", "prior_alone"})
    data = sample.model_dump(mode="json", exclude={"cell"})
    if cell.kind == "attack":
        del data["train_size"], data["test_size"]
    defences = [parse_spec(part)[0] for part in split_chain(cell.defence)] if cell.kind == "attack" else [cell.defence]
    network = cell.subject.model_dump(include={"model", "options", "weights", "mode", "classes"})
    return {**own, **data, "network": network, "defences": defences}


def price_cells(plan: Plan, *, workers: int, seconds: float | None = None) -> PriceList:
    """Sample each group of cells once, in the order in which a budget is spent on them.

    No sample run begins after `seconds`, and none lasts longer; groups not reached are priced like the most expensive.
    """
    began = time.monotonic()
    # Closed forms before other attacks, undefended before defended; training last.
    groups = sorted(group_cells(plan), key=lambda group: (*group.sort, group.sample.cell.defence != NONE))
    patience = SAMPLE_SECONDS if seconds is None else min(SAMPLE_SECONDS, max(_LEAST_SAMPLE_SECONDS, seconds))
    samples = [
        Cell.of(group.sample.model_dump(mode="json"), code_version=__version__, label=group.sample.cell.label)
        for group in groups
    ]
    with tempfile.TemporaryDirectory(prefix="leakscope-sample-") as folder:
        processes = min(workers, max(1, len(groups)))
        execute = partial(run_sample, inputs=plan.inputs)
        launched = time.monotonic()
        found = run(samples, execute, Path(folder) / "run", workers=processes, timeout=patience, seconds=seconds)
        lasted = time.monotonic() - launched
        finished, outcomes = found.finished, list(found.outcomes)
    if found.signal:
        # Nothing is lost by stopping here; as if the sweep had not caught it.
        signal.raise_signal(found.signal)
    wall, cpu = (sum(one.measured.get(name, 0.0) for one in finished) for name in ("wall", "cpu"))
    # Other programs, or more workers than cores, make a process take longer than its own work.
    slowdown = max(1.0, wall / cpu) if cpu > 0 else 1.0
    known = [
        (group, _price(group, outcome, slowdown=slowdown, patience=patience))
        for group, outcome in zip(groups, outcomes, strict=True)
        if outcome is not None
    ]
    missing = [group for group, outcome in zip(groups, outcomes, strict=True) if outcome is None]
    known += [(group, _assume_highest(group, known)) for group in missing]
    prices = {cell.label: price for group, price in known for cell in group.cells}
    base = max((outcome.measured.get("base_mb", 0.0) for outcome in finished), default=0.0)
    starting = max(0.0, lasted - wall / processes)
    return PriceList(prices, len(groups), base, time.monotonic() - began, slowdown, starting)


def _price(group: CellGroup, outcome: CellOutcome, *, slowdown: float, patience: float) -> Price:
    """The price of a sampled group in wall time."""
    if outcome.status is Status.OK:
        fixed, step = (slowdown * outcome.measured[name] for name in ("fixed", "step"))
        return Price("measured", group.effort, fixed, step, outcome.measured["mb"], note=outcome.record["how"])
    if outcome.status is Status.TIMEOUT:
        return _assume(group, f"not measured: the sample run took more than {patience:g} s", seconds=patience)
    reason = outcome.record.get("message") or outcome.record.get("error") or str(outcome.status)
    return Price("refused" if outcome.status is Status.REFUSED else "failed", group.effort, note=str(reason))


def _assume(group: CellGroup, why: str, *, seconds: float) -> Price:
    """A price for what could not be measured, as if its sample run had just ended after `seconds`."""
    closed = group.effort.steps is None
    rate = seconds if closed else seconds / STEPS
    note = f"{why}; priced at {rate:.3g} s {'a victim' if closed else 'a step and victim'}"
    fixed, step = (rate * group.starts, 0.0) if closed else (0.0, rate * group.starts)
    return Price("assumed", group.effort, fixed, step, note=note)


def _assume_highest(mine: CellGroup, known: Sequence[tuple[CellGroup, Price]]) -> Price:
    """The highest price of the same sort, for a group that there was no time to sample."""
    alike = [(price, mine.starts / group.starts) for group, price in known if group.sort == mine.sort and price.costs]
    why = "not sampled for lack of time"
    if not alike:
        return _assume(mine, why, seconds=SAMPLE_SECONDS)
    price, share = max(alike, key=lambda pair: pair[1] * (pair[0].fixed + pair[0].step))
    note = f"{why}; priced like the most expensive sample"
    return Price("assumed", mine.effort, share * price.fixed, share * price.step, price.mb, note=note)
