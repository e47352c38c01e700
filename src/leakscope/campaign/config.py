"""The typed configuration of an audit; YAML in, nothing executed."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from leakscope.campaign.durations import parse_duration
from leakscope.errors import BadInputError, UsageError, suggest
from leakscope.report.schema import Planned, PlannedAttack, Positive
from leakscope.types import LocalTraining

__all__ = ["AccuracyTraining", "Config", "Planned", "PlannedAttack", "json_schema", "load_config", "parse_config"]

_LARGEST_CONFIG = 1_000_000
Duration = Annotated[float, BeforeValidator(parse_duration, json_schema_input_type=float | str)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AccuracyTraining(_Part):
    """The short training that tells what a defence costs in accuracy."""

    rounds: Positive = 100
    clients: Positive = 4
    batch_size: Positive = 16
    lr: float = Field(default=0.1, gt=0)
    examples: Positive = 2_000


class Config(_Part):
    """A grid: models × data × attacks × defences × scenarios × seeds.

    Attacks and defences are specs such as `prune:fraction=0.9`; defences may be chained with
    `+`. `fail_above` turns the audit into a gate: exit code 1 when an undefended example comes
    back above that many decibels. `local` is how a client trains before it shares; without it one
    gradient is shared. `rounds` is how often the server asks the same clients, by default as often as
    an attack needs. `budget` is wall time
    to split over the cells; `planned` is what it came to, written by the run itself so that continuing
    it uses the same numbers.
    """

    title: str = "Leakage audit"
    models: tuple[str, ...] = ("mlp",)
    model_options: dict[str, dict[str, Any]] = {}
    weights: str | None = None
    mode: Literal["eval", "train"] = "eval"
    data: tuple[str, ...] = ("digits",)
    size: Positive | tuple[Positive, Positive] | None = None
    split: Literal["train", "test", "all"] = "test"
    victims: Positive = 4
    batch_size: Positive = 1
    attacks: tuple[str, ...] = ("fc-inversion", "inverting-gradients")
    defences: tuple[str, ...] = ("none",)
    adaptive: bool = True
    scenarios: tuple[Literal["A", "B", "C", "D", "E"], ...] = ("C",)
    seeds: tuple[int, ...] = (0,)
    local: LocalTraining | None = None
    rounds: Positive | None = None
    utility: AccuracyTraining | None = AccuracyTraining()
    threshold_psnr: float = 20.0
    fail_above: float | None = None
    lpips: bool = False
    show_images: bool | None = None
    workers: Positive | None = None
    timeout: float | None = Field(default=None, gt=0)
    budget: Duration | None = None
    planned: Planned | None = None


def load_config(path: str | Path) -> Config:
    """Read a YAML file; a misspelt key is an error that names the nearest right one."""
    file = Path(path)
    try:
        text = file.read_bytes()
    except OSError as error:
        raise BadInputError(f"cannot read the configuration {file}: {error.strerror}; check the path") from error
    if len(text) > _LARGEST_CONFIG:
        raise BadInputError(f"the configuration {file} has {len(text)} bytes; expected at most {_LARGEST_CONFIG}")
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadInputError(f"{file} is not valid YAML: {_first_line(error)}") from error
    if not isinstance(found, dict):
        raise BadInputError(f"{file} must hold a mapping of settings, got {type(found).__name__}")
    return parse_config(found, source=str(file))


def parse_config(values: dict[str, Any], *, source: str = "the configuration") -> Config:
    """Check settings against the schema."""
    for key in values:
        if key not in Config.model_fields:
            raise UsageError(f"{source}: unknown setting {key!r}.{suggest(str(key), Config.model_fields)}")
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        own = first.get("ctx", {}).get("error")
        # Our own checks say themselves what they got.
        text = f"{first['msg']}, got {str(first['input'])[:80]!r}{_hint(first)}" if own is None else str(own)
        raise UsageError(f"{source}: {where}: {text}") from error


def _hint(error: ErrorDetails) -> str:
    """The nearest right word for a misspelt one, where a few are allowed."""
    if error["type"] == "literal_error":
        return "." + suggest(str(error["input"]), re.findall(r"'([^']*)'", error.get("ctx", {})["expected"]))
    if error["type"] == "unexpected_keyword_argument" and error["loc"][0] == "local":
        return "." + suggest(str(error["loc"][-1]), (field.name for field in fields(LocalTraining)))
    return ""


def json_schema() -> dict[str, Any]:
    """The schema for editors."""
    return Config.model_json_schema()


def _first_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f" in line {mark.line + 1}" if mark is not None else ""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text + where
