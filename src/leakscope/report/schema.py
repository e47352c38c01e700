"""The shape of `summary.json`, version 1, checked once so that nothing later has to guess.

Strings and lists are bounded here: a summary, however large or hostile, cannot make the page
outgrow its size limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from leakscope.errors import BadInputError

_LONGEST_TEXT = 2_000


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


Text = Annotated[str, AfterValidator(_clip)]
Texts = Annotated[list[Text], AfterValidator(lambda items: items[:200])]
Number = float | None


class _Part(BaseModel):
    # Later versions may add fields; an older reader must still show what it knows.
    model_config = ConfigDict(extra="ignore", frozen=True)


class Local(_Part):
    """How a client trained before it shared a weight delta."""

    lr: float
    steps: int | None = None
    batch_size: int = 1
    epochs: int | None = None
    optimiser: Text = "sgd"
    momentum: float = 0.0

    @property
    def amount(self) -> str:
        """How much was trained, e.g. "4 local steps"."""
        count, unit = (self.steps, "local step") if self.epochs is None else (self.epochs, "local epoch")
        return f"{count} {unit}" if count == 1 else f"{count} {unit}s"

    @property
    def method(self) -> str:
        """What a reader must know besides rate and amount; empty for plain SGD."""
        if self.optimiser != "sgd":
            return f", {self.optimiser}"
        return f", momentum {self.momentum:g}" if self.momentum else ""


class CellScores(_Part):
    """One entry per private example."""

    psnr: list[Number] = []
    ssim: list[Number] = []
    mse: list[Number] = []
    lpips: list[Number] | None = None
    label_correct: list[bool | None] = []
    baseline_psnr: list[Number] | None = None


class Spread(_Part):
    """Confidence interval of the median."""

    ci_low: Number = None
    ci_high: Number = None


class Cell(_Part):
    """One attack under one defence, scenario and seed."""

    key: Text
    model: Text
    data: Text
    attack: Text
    defence: Text
    scenario: Text
    seed: int
    status: Text
    attack_paper: Text = ""
    adaptive: bool = False
    local: Local | None = None
    victims: int = 1
    batch_size: int = 1
    error: Text | None = None
    n: int = 0
    scores: CellScores = CellScores()
    stats: dict[str, Spread] = {}
    loss: Number = None
    history: list[Number] = []
    evaluations: int = 0
    notes: Texts = []


class DefenceCost(_Part):
    """What a defence does to accuracy, time and traffic."""

    name: Text
    paper: Text = ""
    model: Text = ""
    data: Text = ""
    accuracy: Number = None
    ci: list[Number] | None = None
    accuracy_drop: Number = None
    step_time_ratio: Number = None
    upload_ratio: Number = None
    diverged: bool = False


class Verdict(_Part):
    """What the first screen says."""

    grade: Text
    status: Text
    headline: Text
    sentences: Texts


class ScenarioText(_Part):
    """What one threat scenario grants and withholds."""

    grants: Texts = []
    withholds: Texts = []
    text: Text = ""


class SelfCheck(_Part):
    """The known-answer attack that shows the instrument works."""

    name: Text = ""
    psnr: Number = None
    passed: bool = False


class Counts(_Part):
    """How many cells ended how."""

    total: int = 0
    ok: int = 0
    failed: dict[str, int] = {}


class Summary(_Part):
    """All of `summary.json`."""

    version: Literal[1] = Field(alias="schema")
    title: Text
    leakscope: Text
    cells: list[Cell]
    threshold_psnr: float
    command: Text = ""
    config: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    code: dict[str, Any] = {}
    self_check: SelfCheck | None = None
    verdict: Verdict | None = None
    scenarios: dict[str, ScenarioText] = {}
    defences: list[DefenceCost] = []
    counts: Counts | None = None
    not_tested: Texts = []
    reproduce: Texts = []
    timings: dict[str, Number] = {}


def parse_summary(data: Mapping[str, Any]) -> Summary:
    """Check `data` against the schema.

    Raises:
        BadInputError: naming the first field that does not fit.
    """
    try:
        return Summary.model_validate(data)
    except ValidationError as error:
        raise BadInputError(_explain("summary", error)) from error


def parse_cells(cells: list[Mapping[str, Any]]) -> list[Cell]:
    """Check a list of cells as found in `summary["cells"]`."""
    try:
        return [Cell.model_validate(cell) for cell in cells]
    except ValidationError as error:
        raise BadInputError(_explain("cell", error)) from error


def parse_costs(rows: list[Mapping[str, Any]]) -> list[DefenceCost]:
    """Check a list of defence costs as found in `summary["defences"]`."""
    try:
        return [DefenceCost.model_validate(row) for row in rows]
    except ValidationError as error:
        raise BadInputError(_explain("defence", error)) from error


def _explain(what: str, error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the top level"
    count = error.error_count()
    more = f" ({count - 1} more problems)" if count > 1 else ""
    return (
        f"{what} does not fit schema 1 at {where}: {first['msg']}{more}; "
        "write it again with `leakscope audit`, or check that the file was not edited"
    )
