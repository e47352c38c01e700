"""What the table of all defences keeps of its cells and trainings, and how it is printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from leakscope.files import write_atomic
from leakscope.report.schema import CellRecord

RESULTS = Path(__file__).resolve().parent / "results" / "defences"


@dataclass(frozen=True)
class DefenceCell:
    """What one attack came to under one defence: PSNR of every picture, and against those that were trained on."""

    attack: str
    defence: str
    adaptive: bool
    status: str
    psnr: tuple[float, ...]
    trained: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[str, str, bool]:
        """What of the table it is."""
        return self.attack, self.defence, self.adaptive

    @classmethod
    def of(cls, cell: CellRecord) -> DefenceCell:
        """The part of an audit's cell that the table shows."""
        scores = numbers(cell.scores), numbers(cell.trained_scores)
        return cls(cell.attack, cell.defence, cell.adaptive, str(cell.status), *scores)


@dataclass(frozen=True)
class Accuracy:
    """What trainings under a defence came to, in percent; the interval of one seed is of the test examples alone."""

    mean: float
    low: float
    high: float
    at_chance: bool
    seeds: int = 3

    def __str__(self) -> str:
        """For a cell of the table."""
        told = f"{self.mean:.1f} [{self.low:.1f}, {self.high:.1f}]"
        return told + ", chance" * self.at_chance + ", one seed" * (self.seeds == 1)


@dataclass(frozen=True)
class Measured:
    """One network on one data set: every cell, and accuracy by defence."""

    part: str
    data: str
    cells: tuple[DefenceCell, ...]
    costs: dict[str, Accuracy]

    @property
    def file(self) -> Path:
        """Where it is kept."""
        return RESULTS / f"{self.part}-{self.data}.json"

    def store(self) -> None:
        """Keep it, as small JSON."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.file, (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode())
        # A file of the checkout, readable as all others there.
        self.file.chmod(0o644)

    def added_to(self, kept: Measured | None) -> Measured:
        """This beside what is kept of other cells and other trainings; of the same ones this counts."""
        if kept is None:
            return self
        cells = {cell.key: cell for cell in (*kept.cells, *self.cells)}
        return replace(self, cells=tuple(cells.values()), costs={**kept.costs, **self.costs})

    def load(self) -> Measured | None:
        """What is kept under the same name."""
        if not self.file.exists():
            return None
        told = json.loads(self.file.read_text(encoding="utf-8"))
        cells = [
            DefenceCell(**{**one, "psnr": tuple(one["psnr"]), "trained": tuple(one["trained"])})
            for one in told["cells"]
        ]
        return replace(self, cells=tuple(cells), costs={spec: Accuracy(**one) for spec, one in told["costs"].items()})


def table(found: Measured, *, attack: str, defences: Sequence[str]) -> Iterator[str]:
    """A Markdown table of one network on one data set: a line a defence, in this order."""
    pictures = max((len(cell.psnr) for cell in found.cells), default=0)
    yield f"\n**{found.part}, {found.data}** ({attack}, {pictures} pictures)\n"
    yield "| defence | unaware: median, worst dB | knows it: median, worst dB | strongest | accuracy % |"
    yield "|---|---|---|---|---|"
    for spec in defences:
        cells = [cell for cell in found.cells if cell.defence == spec]
        own = [cell for cell in cells if cell.attack == attack]
        unaware = [cell for cell in own if not cell.adaptive]
        knowing = [cell for cell in own if cell.adaptive]
        yield f"| {spec} | {told(unaware)} | {told(knowing)} | {strongest(cells)} | {found.costs.get(spec, '–')} |"


def told(cells: Sequence[DefenceCell]) -> str:
    """Median and worst PSNR of a cell, both truths, and its status where it is no evidence."""
    if not cells:
        return "–"
    (cell,) = cells
    if not cell.psnr:
        return cell.status
    text = f"{median(cell.psnr):.1f}, {max(cell.psnr):.1f}"
    if cell.trained:
        text += f" ({median(cell.trained):.1f}, {max(cell.trained):.1f})"
    return text if cell.status == "ok" else f"{text} {cell.status}"


def strongest(cells: Sequence[DefenceCell]) -> str:
    """The attack whose worst picture came back best, whatever its status: a leak needs no verdict."""
    found = [cell for cell in cells if cell.psnr]
    if not found:
        return "–"
    cell = max(found, key=lambda one: max(one.psnr))
    name = cell.attack.split(":")[0] + (" knowing it" if cell.adaptive else "")
    return f"{max(cell.psnr):.1f} ({name})"


def numbers(scores: dict[str, list[Any]]) -> tuple[float, ...]:
    """The PSNR values that were computed."""
    return tuple(float(value) for value in scores.get("psnr", ()) if value is not None)
