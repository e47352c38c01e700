"""The typed configuration of an audit; YAML in, nothing executed."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails

from leakscope.audits.durations import parse_duration
from leakscope.data.own import is_function
from leakscope.errors import BadInputError, UsageError, suggest
from leakscope.registry import parse_spec, split_chain
from leakscope.report.schema import Planned, PlannedAttack, Positive, Settings
from leakscope.types import LocalTraining
from leakscope.user_code import is_code

__all__ = ["AccuracyTraining", "Config", "Planned", "PlannedAttack", "json_schema", "load_config", "parse_config"]

_LARGEST_CONFIG = 1_000_000
Duration = Annotated[float, BeforeValidator(parse_duration, json_schema_input_type=float | str)]


class AccuracyTraining(Settings):
    """The short training that tells what a defence costs in accuracy."""

    rounds: Positive = 100
    clients: Positive = 4
    batch_size: Positive = 16
    lr: float = Field(default=0.1, gt=0)
    examples: Positive = 2_000


class Config(Settings):
    """A grid: models × data × attacks × defences × scenarios × seeds.

    Attacks and defences are specs such as `prune:fraction=0.9`; defences may be chained with
    `+`. `fail_above` turns the audit into a gate: exit code 1 when an undefended example comes
    back above that many decibels. `local` is how a client trains before it shares; without it one
    gradient is shared. `rounds` is how often the server asks the same clients, by default as often as
    an attack needs. `size` is a side, or height and width. `bounds`, `normalise` and `classes` are as on
    the command line. `budget` is wall time
    to split over the cells; `planned` is what it came to, written by the run itself so that continuing
    it uses the same numbers.
    """

    title: str = "Leakage audit"
    models: tuple[str, ...] = ("mlp",)
    model_options: dict[str, dict[str, Any]] = Field(default={})
    weights: str | None = None
    mode: Literal["eval", "train"] = "eval"
    classes: Positive | None = None
    normalise: str | None = None
    data: tuple[str, ...] = ("digits",)
    size: Positive | tuple[Positive, Positive] | None = None
    bounds: str | None = None
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


def load_config(path: str | Path, *, allow_code: bool = False) -> Config:
    """Read a YAML file; a misspelt key is an error that names the nearest right one.

    A file may come from anyone: code in it is refused, unless `allow_code` says that leakscope wrote it.
    """
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
    return parse_config(found, source=str(file), allow_code=allow_code)


def parse_config(values: dict[str, Any], *, source: str = "the configuration", allow_code: bool = False) -> Config:
    """Check settings against the schema.

    Args:
        values: Settings by name.
        source: Where they come from, for messages.
        allow_code: Whether models, data, attacks and defences may be `package.module:function`: only where the
            user wrote them, on the command line or in a program, and never a file.
    """
    for key in values:
        if key not in Config.model_fields:
            raise UsageError(f"{source}: unknown setting {key!r}.{suggest(str(key), Config.model_fields)}")
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        own = first.get("ctx", {}).get("error")
        # Our own checks say themselves what they got.
        text = f"{first['msg']}, got {str(first['input'])[:80]!r}{_hint(first)}" if own is None else str(own)
        raise UsageError(f"{source}: {where}: {text}") from error
    if not allow_code:
        _refuse_code(config, source)
    return config


def _refuse_code(config: Config, source: str) -> None:
    named = [("model", name) for name in config.models if is_code(name)]
    named += [("data", name) for name in config.data if is_function(name)]
    named += [("attack", spec) for spec in config.attacks if names_code(spec)]
    named += [("defence", spec) for spec in config.defences if names_code(spec)]
    for option, name in named:
        raise UsageError(
            f"{source}: {name!r} is code, and code runs only when it is named on the command line, never from a "
            f"configuration file; pass it as --{option} {name}"
        )


def names_code(spec: str) -> bool:
    """Whether an attack, a defence or a part of a chain of defences is a function of the user's own."""
    return any(is_code(parse_spec(part)[0]) for part in split_chain(spec))


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
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    where = f" in line {mark.line + 1}" if mark is not None else ""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text + where
