"""What the cells of a recipe came to, found by tags."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from torch import Tensor

from leakscope.errors import UsageError
from leakscope.reproduction.cells import RecipeCell
from leakscope.reproduction.recipe import Tag
from leakscope.runner import CellOutcome
from leakscope.types import Status

# Of cells that ended well, or of all that brought values back: an attack that gave up is a fact about the attack, and
# no evidence that a defence works.
Ended = Literal["ok", "any"]
# Under this name a worker keeps the processor time of a cell.
PROCESSOR = "processor_seconds"


@dataclass(frozen=True)
class CallValues:
    """What a function behind `call_cell` returns.

    `values` are numbers, or lists with one entry per independent unit (a victim, a policy, a seed), by name. An entry
    is a number, or a list of them that belong together: they count as one unit. `pictures` are small tensors.
    """

    values: Mapping[str, float | Sequence[float] | Sequence[Sequence[float]]]
    pictures: Mapping[str, Tensor] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CellResult:
    """One cell and its outcome; None where it was never run."""

    cell: RecipeCell
    outcome: CellOutcome | None

    @property
    def is_ok(self) -> bool:
        """Whether it ended well."""
        return self.outcome is not None and self.outcome.status is Status.OK

    @property
    def status(self) -> str:
        """How it ended, in a word."""
        return "not run" if self.outcome is None else str(self.outcome.status)

    @property
    def reason(self) -> str:
        """Why it did not end well: what the recipe says, else what the worker said."""
        if self.is_ok or self.outcome is None:
            return "" if self.is_ok else "it was not run"
        said = [self.outcome.record.get(name) for name in ("error", "message")]
        return (
            self.cell.expected.get(self.status)
            or ": ".join(str(part) for part in said if part)
            or f"it ended as {self.status}"
        )

    @property
    def is_explained(self) -> bool:
        """Whether it ended well, or as the recipe says that it would."""
        return self.is_ok or self.status in self.cell.expected

    @property
    def values(self) -> Mapping[str, Any]:
        """What it brought back, by name."""
        return {} if self.outcome is None else self.outcome.record.get("values", {})

    @property
    def pictures(self) -> Mapping[str, Tensor]:
        """Small tensors by name."""
        return {} if self.outcome is None else self.outcome.tensors

    @property
    def seconds(self) -> float:
        """Processor time it took, of one core; where the worker could not say, seconds on the clock."""
        return 0.0 if self.outcome is None else self.outcome.measured.get(PROCESSOR, self.outcome.seconds)

    def units(self, metric: str) -> list[float]:
        """One number per independent unit: of a victim with several examples their mean."""
        if metric == "seconds":
            return [self.seconds]
        found = self.values.get(metric)
        if found is None:
            return []
        units = found if isinstance(found, list) else [found]
        return [fmean(map(_number, unit)) if isinstance(unit, list) else _number(unit) for unit in units]

    def examples(self, metric: str) -> list[float]:
        """One number per example, whoever's it is."""
        found = self.values.get(metric, [])
        units = found if isinstance(found, list) else [found]
        return [_number(one) for unit in units for one in (unit if isinstance(unit, list) else [unit])]


@dataclass(frozen=True)
class Results:
    """The cells of a recipe at one scale, in the order of the recipe."""

    cells: tuple[CellResult, ...]

    def __iter__(self) -> Iterator[CellResult]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)

    def where(self, **tags: Tag) -> Results:
        """The cells that have all of these tags."""
        return Results(tuple(one for one in self.cells if _has(one.cell, tags)))

    def one(self, **tags: Tag) -> CellResult:
        """The only cell with these tags."""
        found = self.where(**tags).cells
        if len(found) != 1:
            raise UsageError(f"expected one cell with {tags}, found {len(found)}; name more of its tags")
        return found[0]

    def units(self, metric: str, *, ended: Ended = "ok", **tags: Tag) -> list[float]:
        """All finite units of the cells with these tags."""
        chosen = [one for one in self.where(**tags) if ended == "any" or one.is_ok]
        return [value for one in chosen for value in one.units(metric) if math.isfinite(value)]

    def pairs(
        self, metric: str, ours: Mapping[str, Tag], others: Mapping[str, Tag], *, ended: Ended = "ok"
    ) -> tuple[list[float], list[float]]:
        """Units of the cells tagged `ours` beside those tagged `others` that have all other tags in common."""
        left: list[float] = []
        right: list[float] = []
        for one in self.where(**ours):
            rest = {name: value for name, value in one.cell.tags.items() if name not in ours}
            for other in self.where(**others, **{name: value for name, value in rest.items() if name not in others}):
                if ended == "ok" and not (one.is_ok and other.is_ok):
                    continue
                for pair in _zip(one, other, metric):
                    left.append(pair[0])
                    right.append(pair[1])
        return left, right

    def tags(self, name: str) -> list[Tag]:
        """The values of one tag, in order."""
        return list(dict.fromkeys(one.cell.tags[name] for one in self.cells if name in one.cell.tags))


def _zip(one: CellResult, other: CellResult, metric: str) -> list[tuple[float, float]]:
    left, right = one.units(metric), other.units(metric)
    if left and right and len(left) != len(right):
        raise UsageError(f"{one.cell.name} and {other.cell.name} have {len(left)} and {len(right)} units of {metric}")
    pairs = zip(left, right, strict=False)
    return [pair for pair in pairs if all(math.isfinite(value) for value in pair)]


def _has(cell: RecipeCell, tags: Mapping[str, Tag]) -> bool:
    return all(name in cell.tags and cell.tags[name] == value for name, value in tags.items())


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
