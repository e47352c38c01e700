"""What a run came to, cell by cell and in all: the records that plan, workers, summary and page share.

`Summary` is the shape of `summary.json`, version 1, checked once so that nothing later has to guess.

Strings and lists are bounded here: a summary, however large or hostile, cannot make the page
outgrow its size limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from leakscope.errors import BadInputError
from leakscope.types import LocalTraining

_LONGEST_TEXT = 2_000


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


Text = Annotated[str, AfterValidator(_clip)]
Texts = Annotated[list[Text], AfterValidator(lambda items: items[:200])]
Number = float | None
Score = float | bool | None
Positive = Annotated[int, Field(ge=1)]


def _drop_unmeasured(columns: object) -> object:
    # Version 0.1 wrote null for a metric that was not asked for.
    return (
        {name: values for name, values in columns.items() if values is not None}
        if isinstance(columns, dict)
        else columns
    )


class Document(BaseModel):
    """What leakscope writes. Later versions may add fields; an older reader must still show what it knows."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Settings(Document, extra="forbid"):
    """What a user writes: a name that is not known is a mistake."""


class PlannedAttack(Settings):
    """An attack at `steps` `of` its own steps, from `restarts` starts; None leaves those as they are."""

    steps: Positive
    of: Positive
    restarts: Positive | None = None

    @model_validator(mode="after")
    def _not_longer(self) -> PlannedAttack:
        if self.steps > self.of:
            raise ValueError(f"an attack is never made longer: steps must be at most {self.of}, got {self.steps}")
        return self


class Planned(Settings):
    """What a budget came to: the length of each attack, and the cells there was no time for, by label."""

    attacks: dict[str, PlannedAttack] = {}
    left_out: tuple[str, ...] = ()


class MetricStats(Document):
    """How the values of one metric are spread over the examples of a cell."""

    median: Number = None
    worst: Number = None
    mean: Number = None
    q05: Number = None
    q25: Number = None
    q75: Number = None
    q95: Number = None
    ci_low: Number = None
    ci_high: Number = None
    n: int = 0


class AttackFindings(Document):
    """What an attack on one cell came to: the part of its record that a worker writes.

    `scores` hold one value per example for each metric, and `baseline_psnr`: what a guess without the update reaches.
    `trained_scores` are against what a client really trained on; empty where its defence did not change the pictures.
    `rounds` are those that were played, and `server` tells whether it handed out what was agreed.
    """

    attack_paper: Text = ""
    error: Text | None = None
    message: Text = ""
    where: Text = ""
    n: int = 0
    scores: Annotated[dict[str, list[Score]], BeforeValidator(_drop_unmeasured)] = {}
    trained_scores: dict[str, list[Score]] = {}
    stats: dict[str, MetricStats] = {}
    loss: Number = None
    history: list[Number] = []
    evaluations: int = 0
    notes: Texts = []
    server: Literal["honest", "malicious"] = "honest"
    rounds: int = 1


class CellRecord(AttackFindings):
    """One attack under one defence, scenario and seed: which cell it was, how it ended and what it came to."""

    key: Text
    model: Text
    data: Text
    attack: Text
    defence: Text
    scenario: Text
    seed: int
    status: Text
    adaptive: bool = False
    local: LocalTraining | None = None
    victims: int = 1
    batch_size: int = 1
    limit: PlannedAttack | None = None

    def column(self, metric: str) -> list[Score]:
        """One value per example; empty where the metric was not computed."""
        return self.scores.get(metric, [])


class TrainingFindings(Document):
    """What a short training under a defence came to: what a worker writes of an accuracy cell."""

    accuracy: float
    ci: tuple[float, float]
    final_loss: Number = None
    nonzero_fraction: float = 1.0
    diverged: bool = False
    rounds: int = 0
    paper: Text = ""


class DefenceCost(Document):
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


class Verdict(Document):
    """What the first screen says."""

    grade: Text
    status: Text
    headline: Text
    sentences: Texts


class ScenarioText(Document):
    """What one threat scenario grants and withholds."""

    grants: Texts = []
    withholds: Texts = []
    text: Text = ""


class SelfCheck(Document):
    """The known-answer attack that shows the instrument works."""

    name: Text = ""
    psnr: Number = None
    passed: bool = False


class Budget(Planned):
    """What a budget made of a run: lengths of attacks, cells without a result, and what a reader must know of it."""

    seconds: Number = None
    shortened: Texts = []
    unfinished: int = 0
    caution: Texts = []


class Counts(Document):
    """How many cells ended how."""

    total: int = 0
    ok: int = 0
    failed: dict[str, int] = {}


class Summary(Document):
    """All of `summary.json`."""

    version: Literal[1] = Field(alias="schema")
    title: Text
    leakscope: Text
    cells: list[CellRecord]
    threshold_psnr: float
    command: Text = ""
    config: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    code: dict[str, Any] = {}
    self_check: SelfCheck | None = None
    verdict: Verdict | None = None
    budget: Budget | None = None
    scenarios: dict[str, ScenarioText] = {}
    defences: list[DefenceCost] = []
    counts: Counts | None = None
    not_tested: Texts = []
    reproduce: Texts = []
    timings: dict[str, Number] = {}

    def to_json(self) -> str:
        """The content of `summary.json`."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, allow_nan=False)


def parse_summary(data: Mapping[str, Any]) -> Summary:
    """Check `data` against the schema.

    Raises:
        BadInputError: naming the first field that does not fit.
    """
    try:
        return Summary.model_validate(data)
    except ValidationError as error:
        raise BadInputError(_explain(error)) from error


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the top level"
    count = error.error_count()
    more = f" ({count - 1} more problems)" if count > 1 else ""
    return (
        f"summary does not fit schema 1 at {where}: {first['msg']}{more}; "
        "write it again with `leakscope audit`, or check that the file was not edited"
    )
