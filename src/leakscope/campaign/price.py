"""What a plan costs: every kind of cell probed once, in processes like those of the run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from leakscope.campaign.kinds import Kind, kinds_of
from leakscope.campaign.plan import NONE, Plan
from leakscope.campaign.probe import STEPS, probe
from leakscope.campaign.stepped import Length, scaled
from leakscope.sweep import CellOutcome, run
from leakscope.types import Status

# A probe takes a second or two; one that takes this long is given up. With less time for all of
# them it is given up earlier, but not before it can have set up what every cell uses.
PROBE_SECONDS, _LEAST_PROBE_SECONDS = 30.0, 5.0


@dataclass(frozen=True)
class Price:
    """What one cell costs: seconds before the first step, per step of all its runs, and memory.

    `refused` and `failed` cells cost nothing: the first are outcomes known beforehand, the
    second would end in an error. `assumed` prices were not measured; the note says whence they are.
    `blind` ones were not probed, and nothing like them was: the number tells nothing of the cell.
    """

    status: Literal["measured", "assumed", "refused", "failed"]
    length: Length
    fixed: float = 0.0
    step: float = 0.0
    mb: float = 0.0
    note: str = ""
    blind: bool = False

    @property
    def costs(self) -> bool:
        """Whether the cell does any work."""
        return self.status in ("measured", "assumed")

    def seconds(
        self, *, steps: int | None = None, of: int | None = None, restarts: int | None = None, attempts: int = 1
    ) -> float:
        """Seconds of a cell at `steps` / `of` of its length, without stopping early."""
        own = self.length.steps or 0
        count = scaled(own, steps=steps, of=of) if steps is not None and of and own else own
        share = 1.0 if restarts is None else restarts / self.length.restarts
        return self.fixed + self.step * count * share * attempts

    def at_most(self, *, steps: int | None = None, of: int | None = None, restarts: int | None = None) -> float:
        """Seconds when every retry is used."""
        return self.seconds(steps=steps, of=of, restarts=restarts, attempts=self.length.attempts)


@dataclass(frozen=True)
class Quote:
    """The price of every cell by its key; `base_mb` is what a worker process needs by itself.

    `slowdown` is wall time over processor time while probing, and part of every price.
    """

    prices: Mapping[str, Price]
    kinds: int
    base_mb: float
    probe_seconds: float
    slowdown: float = 1.0


def quote(plan: Plan, *, workers: int, seconds: float | None = None) -> Quote:
    """Probe each kind of cell once, in the order in which a budget is spent on them.

    No probe begins after `seconds`, and none lasts longer; kinds not reached are priced like the nearest one.
    """
    began = time.monotonic()
    kinds = sorted(kinds_of(plan), key=_urgency)
    patience = PROBE_SECONDS if seconds is None else min(PROBE_SECONDS, max(_LEAST_PROBE_SECONDS, seconds))
    with tempfile.TemporaryDirectory(prefix="leakscope-probe-") as folder:
        found = run(
            [kind.probe for kind in kinds], probe, Path(folder) / "run", workers=min(workers, max(1, len(kinds))),
            timeout=patience, seconds=seconds,
        )  # fmt: skip
    slowdown = _slowdown(found.finished)
    own = [
        _price(kind, outcome, slowdown, patience=patience) for kind, outcome in zip(kinds, found.outcomes, strict=True)
    ]
    full = [_nearest(i, kinds, own) if price is None else price for i, price in enumerate(own)]
    base = max((outcome.measured.get("base_mb", 0.0) for outcome in found.finished), default=0.0)
    prices = {cell.key: price for kind, price in zip(kinds, full, strict=True) for cell in kind.cells}
    return Quote(prices, len(kinds), base, time.monotonic() - began, slowdown)


def wall_seconds(costs: Sequence[float], *, workers: int) -> float:
    """Time until `workers` processes are through; never less than the longest cell."""
    return max(sum(costs) / workers, max(costs, default=0.0))


def _urgency(kind: Kind) -> tuple[bool, bool, bool]:
    """Closed forms before other attacks, undefended before defended; training last."""
    spec: Any = kind.probe.spec
    return spec["kind"] != "attack", kind.length.steps is not None, spec["defence"] != NONE


def _slowdown(outcomes: Sequence[CellOutcome]) -> float:
    """How much longer than its own work a process takes here: other programs, or more workers than cores."""
    wall, cpu = (sum(outcome.measured.get(name, 0.0) for outcome in outcomes) for name in ("wall", "cpu"))
    return max(1.0, wall / cpu) if cpu > 0 else 1.0


def _price(
    kind: Kind, outcome: CellOutcome | None, slowdown: float = 1.0, *, patience: float = PROBE_SECONDS
) -> Price | None:  # fmt: skip
    """The price of a probed kind in wall time, None when it was not probed."""
    if outcome is None:
        return None
    if outcome.status is Status.OK:
        fixed, step = (slowdown * outcome.measured[name] for name in ("fixed", "step"))
        return Price("measured", kind.length, fixed, step, outcome.measured["mb"], note=outcome.record["how"])
    if outcome.status is Status.TIMEOUT:
        return _assumed(kind, f"not measured: the probe took more than {patience:g} s", seconds=patience)
    reason = outcome.record.get("message") or outcome.record.get("error") or str(outcome.status)
    word = "refused" if outcome.status is Status.REFUSED else "failed"
    return Price(word, kind.length, note=str(reason))


def _assumed(kind: Kind, why: str, *, seconds: float, blind: bool = False) -> Price:
    """A price for what could not be measured, as if its probe had just ended after `seconds`."""
    if kind.length.steps is None:
        note = f"{why}; priced at {seconds:g} s a victim"
        return Price("assumed", kind.length, fixed=seconds * kind.groups, note=note, blind=blind)
    step = seconds / STEPS
    note = f"{why}; priced at {step:.3g} s a step and victim"
    return Price("assumed", kind.length, step=step * kind.groups, note=note, blind=blind)


def _nearest(place: int, kinds: Sequence[Kind], prices: Sequence[Price | None]) -> Price:
    """The price of the most similar measured kind, for one the probe had no time for."""
    mine = kinds[place]
    known = [
        (kind, price) for kind, price in zip(kinds, prices, strict=True)
        if price is not None and price.costs and kind.probe.spec["kind"] == mine.probe.spec["kind"]
        # A closed form tells nothing of what a step costs.
        and (kind.length.steps is None) == (mine.length.steps is None)
    ]  # fmt: skip
    if not known:
        return _assumed(mine, "not probed for lack of time", seconds=PROBE_SECONDS, blind=True)
    kind, price = max(known, key=lambda pair: _likeness(mine, pair[0]))
    share = mine.groups / kind.groups
    return Price(
        "assumed", mine.length, price.fixed * share, price.step * share, price.mb,
        note=f"not probed for lack of time; priced like {kind.probe.label}",
    )  # fmt: skip


def _likeness(one: Kind, other: Kind) -> tuple[bool, ...]:
    first: Any = one.probe.spec
    second: Any = other.probe.spec
    same = [first.get(name) == second.get(name) for name in ("network", "attack", "adaptive", "scenario")]
    # A network of the same size says more than the same attack on another one.
    return (same[0] and same[1], same[0], *same[1:])
