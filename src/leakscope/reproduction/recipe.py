"""A table or a figure of a paper as a value: what it claims, its numbers, and the cells that measure it again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from leakscope.errors import UsageError
from leakscope.runner import JSON

if TYPE_CHECKING:
    from leakscope.reproduction.cells import RecipeCell
    from leakscope.reproduction.drawing import Drawing
    from leakscope.reproduction.results import Results

ScaleName = Literal["smoke", "cpu", "paper"]
SCALES: tuple[ScaleName, ...] = ("smoke", "cpu", "paper")
Outcome = Literal["holds", "holds weakly", "does not hold", "not testable"]
OUTCOMES: tuple[Outcome, ...] = ("holds", "holds weakly", "does not hold", "not testable")
Tag = str | int | float | bool

_NAME = re.compile(r"[a-z0-9_]+/[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class ClaimVerdict:
    """What became of a claim: the effect with its 95 % interval, in `unit`, over `n` independent units."""

    outcome: Outcome
    effect: float | None = None
    interval: tuple[float, float] | None = None
    unit: str = ""
    n: int = 0
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that can fail.

    Attributes:
        id: short name, unique in its recipe.
        statement: the claim in our words, as a sentence that is true or false.
        reported: what the paper reports for it, with the numbers.
        judge: from the cells' results to a verdict.
        fails: why the claim is known not to hold here; empty where it does, or where nobody knows yet.
    """

    id: str
    statement: str
    reported: str
    judge: Callable[[Results], ClaimVerdict] = field(repr=False)
    fails: str = ""


@dataclass(frozen=True)
class PaperNumber:
    """One printed number, with the cells that measure the same: a row of the table on the page.

    Attributes:
        where: table or figure, as the paper calls it.
        row: what the row says.
        column: what the column says.
        value: the number; None where the paper prints a dash or a failure.
        unit: of the number.
        spread: the standard deviation, where one is printed.
        metric: name of the value that the cells bring back.
        tags: of the cells that measure it; None where nothing here does.
        factor: what turns our value into the paper's unit: 100 for a share that is printed as per cent.
        why_not: why nothing here measures it.
    """

    where: str
    row: str
    column: str
    value: float | None
    unit: str = "dB"
    spread: float | None = None
    metric: str = "psnr"
    tags: Mapping[str, Tag] | None = None
    factor: float = 1.0
    why_not: str = ""


@dataclass(frozen=True)
class RecipeScale:
    """How much of the paper's setting is run.

    Attributes:
        name: "smoke" proves that the code runs and nothing else, "cpu" is evidence, "paper" is the full setting.
        minutes: of one quiet core for all cells, measured or, before that, estimated.
        victims: private batches that are attacked, for each combination of the other settings.
        among: how many examples of the test set they are drawn from, the first ones.
        seeds: one run each.
        steps: of the attack, or rounds of a training; 0 where the recipe has neither.
        models, data: names of networks and data sets.
        options: whatever else the recipe's cells depend on.
    """

    name: ScaleName
    minutes: float
    victims: int = 0
    among: int = 0
    seeds: tuple[int, ...] = (0,)
    steps: int = 0
    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_evidence(self) -> bool:
        """Whether a verdict of this scale may be shown as one."""
        return self.name != "smoke"

    def settings(self) -> dict[str, JSON]:
        """What was set, as plain JSON for people."""
        found: dict[str, JSON] = {"victims": self.victims, "seeds": list(self.seeds), "steps": self.steps}
        found |= {"models": list(self.models), "data": list(self.data), **self.options}
        return {name: value for name, value in found.items() if value not in (0, [])}


@dataclass(frozen=True)
class Paper:
    """Where a number comes from: the folder of its recipes, the file of its text, the citation."""

    key: str
    seed: str
    citation: str


@dataclass(frozen=True)
class PaperRecipe:
    """One table or figure.

    Attributes:
        name: "paper/item", e.g. "agic/table-1" for reproductions/agic/table_1.py.
        item: what the paper calls it, e.g. "Table I".
        title: what it shows, in a few words.
        scenario: what the server knows, as a letter of the ladder, or in words where there is no server.
        claims: at least one.
        numbers: the paper's, each with the cells that measure the same.
        scales: smoke, cpu and paper, in this order.
        cells: from a scale to the work; the same scale gives the same cells.
        figures: from results to drawings, made the paper's way.
        stand_ins: which data set or network is used in place of which, and why.
        legacy_metric: the metric of the paper's own code, where it is not ours (`leakscope.metrics.legacy`).
        shares: another recipe whose run folder this one uses: cells that both have run once.
        notes: what else a reader must know.
    """

    name: str
    paper: Paper
    item: str
    title: str
    scenario: str
    claims: tuple[Claim, ...]
    numbers: tuple[PaperNumber, ...]
    scales: tuple[RecipeScale, ...]
    cells: Callable[[RecipeScale], Iterable[RecipeCell]] = field(repr=False)
    figures: Callable[[Results], Sequence[Drawing]] | None = field(default=None, repr=False)
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    legacy_metric: str = ""
    shares: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name.partition("/")[0] != self.paper.key:
            raise UsageError(
                f"RECIPE.name must be {self.paper.key}/item in small letters and hyphens, got {self.name!r}; "
                f"name it after its file"
            )
        if tuple(scale.name for scale in self.scales) != SCALES:
            raise UsageError(f"{self.name}: scales must be {', '.join(SCALES)} in this order; add what is missing")
        ids = [claim.id for claim in self.claims]
        if not ids or len(set(ids)) < len(ids):
            raise UsageError(f"{self.name}: expected at least one claim, each with an id of its own, got {ids}")

    def scale(self, name: str) -> RecipeScale:
        """The scale of this name."""
        return next(scale for scale in self.scales if scale.name == name)

    @property
    def module(self) -> str:
        """The module that holds it, e.g. reproductions.agic.table_1."""
        paper, item = self.name.split("/")
        return f"reproductions.{paper}.{item.replace('-', '_')}"

    def command(self, scale: str) -> str:
        """The line that runs it."""
        return f"leakscope reproduce {self.name} --scale {scale}"
