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
from leakscope.local_training import LocalTraining
from leakscope.settings import PlannedAttack
from leakscope.text import without_controls

_DEEPEST = 20
# How the times of a defence are called among the timings of a run: median, and the middle half.
_STEP_TIMES = ("step ratio", "step ratio low", "step ratio high")


def _clean(value: object, depth: int = 0) -> object:
    """Free all text in `value` of what a page or a terminal would obey; deeper than any setting nothing is kept."""
    if isinstance(value, str) or depth > _DEEPEST:
        return without_controls(value) if isinstance(value, str) else "…"
    if isinstance(value, dict):
        return {_clean(key, depth + 1): _clean(item, depth + 1) for key, item in value.items()}
    return [_clean(item, depth + 1) for item in value] if isinstance(value, (list, tuple)) else value


Text = Annotated[str, AfterValidator(without_controls)]
Anything = Annotated[dict[str, Any], BeforeValidator(_clean)]
Texts = Annotated[list[Text], AfterValidator(lambda items: items[:200])]
Number = float | None
Score = float | bool | None


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


class FitRecord(Document):
    """How much of one attacked update the result explains: `leakscope.Fit` as it is stored."""

    explained: Number = None
    cosine: Number = None
    unrelated: Number = None
    truth: Number = None
    diagnosis: Text = ""


class OpenedFindings(Document):
    """What someone gets who can open sealed updates: who that is, how the attack ended, and its scores by metric."""

    viewer: Text
    status: Text
    scores: dict[Text, list[Score]] = {}
    notes: Texts = []


class AttackFindings(Document):
    """What an attack on one cell came to: the part of its record that a worker writes.

    `scores` hold one value per example for each metric, and `baseline_psnr`: the best null.
    `trained_scores` are against what a client really trained on; empty where its defence did not change the pictures.
    `rounds` are those that were played, and `server` tells whether it handed out what was agreed. `fits` has one entry
    per attacked update; `baselines` one value per example and null baseline, of which `baseline_psnr` is the best.
    `worst` is the place of the worst example; `worst` in `stats` is the value of that very example, in every metric.
    `opened` is what others than the server get of sealed updates.
    """

    attack_paper: Text = ""
    error: Text | None = None
    message: Text = ""
    where: Text = ""
    n: int = 0
    scores: Annotated[dict[Text, list[Score]], BeforeValidator(_drop_unmeasured)] = {}
    trained_scores: dict[Text, list[Score]] = {}
    stats: dict[Text, MetricStats] = {}
    loss: Number = None
    history: list[Number] = []
    evaluations: int = 0
    notes: Texts = []
    server: Literal["honest", "malicious"] = "honest"
    rounds: int = 1
    fits: list[FitRecord] = []
    baselines: dict[Text, list[Number]] = {}
    worst: int | None = None
    opened: list[OpenedFindings] = []


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


class GuaranteeRecord(Document):
    """What a defence proves: `leakscope.defence.Guarantee` as it is stored; `epsilon` is None where it is infinite.

    `steps` are those of all rounds, `local_steps` those of one.
    """

    epsilon: Number = None
    delta: float
    unit: Literal["example", "client"]
    sampling_rate: float
    steps: int
    local_steps: int = 1
    noise_multiplier: float
    reconstruction: dict[Text, float] = {}
    assumes: Text = ""


class TrainingFindings(Document):
    """What a short training under a defence came to: what a worker writes of an accuracy cell.

    `accuracy` is the mean of `accuracies`, one per seed, and `ci` its interval: over the test examples, and over the
    seeds where there are several. `guesses` tells that the accuracy cannot be told from guessing.
    """

    accuracy: float
    ci: tuple[float, float]
    accuracies: list[float] = []
    final_loss: Number = None
    nonzero_fraction: float = 1.0
    bytes_sent: Number = None
    diverged: bool = False
    rounds: int = 0
    paper: Text = ""
    classes: int | None = None
    chance: Number = None
    guarantee: GuaranteeRecord | None = None
    guarantee_of_one: GuaranteeRecord | None = None
    guesses: bool | None = None

    @property
    def at_chance(self) -> bool:
        """Whether the accuracy could be that of naming the most frequent class always."""
        if self.guesses is not None:
            return self.guesses
        return self.chance is not None and self.ci[0] <= self.chance


class DefenceCost(Document):
    """What a defence does to accuracy, time and traffic.

    `accuracy` is the mean of `accuracies`, one per seed, and `ci` its interval over test examples and seeds.
    `accuracy_drop` is what it is below that without a defence, and `accuracy_drop_ci` the interval of that difference.
    `chance` is the accuracy of always naming the most frequent of `classes`. `at_chance` tells that the interval of the
    accuracy reaches down to it: such a network has learnt nothing, and what it does not leak is no merit of a defence.
    Its times differ from run to run: they are written among `Summary.timings`, under `key`, and found there again.
    `guarantee` is what is proven of this training, with the local steps of the audited clients; `guarantee_of_one` of a
    single gradient, or of the change after their local steps, and an example known to be behind it; None where a
    defence proves nothing.
    """

    name: Text
    key: Text = ""
    paper: Text = ""
    model: Text = ""
    data: Text = ""
    accuracy: Number = None
    ci: list[Number] | None = None
    accuracies: list[float] = []
    accuracy_drop: Number = None
    accuracy_drop_ci: list[Number] | None = None
    step_time_ratio: Number = Field(default=None, exclude=True)
    step_time_spread: list[Number] | None = Field(default=None, exclude=True)
    upload_ratio: Number = None
    upload_bytes: Number = None
    diverged: bool = False
    classes: int | None = None
    chance: Number = None
    at_chance: bool = False
    guarantee: GuaranteeRecord | None = None
    guarantee_of_one: GuaranteeRecord | None = None

    @property
    def drop_interval(self) -> tuple[float, float] | None:
        """`accuracy_drop_ci` where both of its ends are known."""
        low, high = self.accuracy_drop_ci or (None, None)
        return None if low is None or high is None else (low, high)

    def timings(self) -> dict[str, Number]:
        """What `Summary.timings` hold of it."""
        low, high = self.step_time_spread or (None, None)
        values = dict(zip(_STEP_TIMES, (self.step_time_ratio, low, high), strict=True))
        return {f"{self.key} {name}": value for name, value in values.items() if self.key and value is not None}


class WorstImage(Document):
    """The one example that grade, PSNR, SSIM, gain and picture of a verdict come from; `key` is that of its cell."""

    key: Text
    index: int
    attack: Text
    defence: Text
    grade: Text
    psnr: Number = None
    ssim: Number = None
    gain: Number = None
    best_null: Text = ""


class Verdict(Document):
    """What the first screen says.

    `status`, `line` and `exit_code` are those of the gate: one decision, whoever shows it.
    """

    grade: Text
    status: Text
    headline: Text
    sentences: Texts
    line: Text = ""
    exit_code: int | None = None
    worst: WorstImage | None = None


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


class Budget(Document):
    """What a budget made of a run: lengths of attacks, cells without a result, and what a reader must know of it."""

    attacks: dict[str, PlannedAttack] = {}
    left_out: tuple[str, ...] = ()
    seconds: Number = None
    shortened: Texts = []
    unfinished: int = 0
    caution: Texts = []


class Counts(Document):
    """How many cells ended how."""

    total: int = 0
    ok: int = 0
    failed: dict[Text, int] = {}


class Summary(Document):
    """All of `summary.json`."""

    version: Literal[1] = Field(alias="schema")
    title: Text
    leakscope: Text
    cells: list[CellRecord]
    threshold_psnr: float
    command: Text = ""
    config: Anything = {}
    environment: Anything = {}
    code: Anything = {}
    self_check: SelfCheck | None = None
    verdict: Verdict | None = None
    budget: Budget | None = None
    scenarios: dict[Text, ScenarioText] = {}
    defences: list[DefenceCost] = []
    counts: Counts | None = None
    not_tested: Texts = []
    reproduce: Texts = []
    timings: dict[Text, Number] = {}

    @model_validator(mode="before")
    @classmethod
    def _find_step_times(cls, data: Any) -> Any:
        """Give every defence its times; version 0.2 and earlier wrote them beside its accuracy."""
        if not isinstance(data, dict) or not isinstance(data.get("timings"), dict):
            return data
        costs = data.get("defences")
        if not isinstance(costs, list) or not all(isinstance(cost, dict) for cost in costs):
            return data
        return {**data, "defences": [_with_times(cost, data["timings"]) for cost in costs]}

    def to_json(self) -> str:
        """The content of `summary.json`."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, allow_nan=False)


def _with_times(cost: dict[str, Any], timings: dict[str, Any]) -> dict[str, Any]:
    ratio, low, high = (timings.get(f"{cost.get('key')} {name}") for name in _STEP_TIMES)
    return cost if ratio is None else {**cost, "step_time_ratio": ratio, "step_time_spread": [low, high]}


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
