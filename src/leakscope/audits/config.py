"""The typed configuration of an audit; YAML in, nothing executed."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from leakscope import catalogue
from leakscope.audits.durations import is_no_limit, parse_duration, parse_time_limit
from leakscope.catalogue import parse_spec, split_chain
from leakscope.errors import BadInputError, UsageError, suggest
from leakscope.execution import PROCESSES, check_execution, is_elsewhere
from leakscope.input_values import find_constants, read_ranges
from leakscope.local_training import LocalTraining
from leakscope.one_hot import parse_one_hot
from leakscope.picture_size import LARGEST_SIDE, height_width
from leakscope.settings import Planned, PlannedAttack, Positive, Settings
from leakscope.user_code import check_findable, is_code
from leakscope.yaml_reader import read_yaml

__all__ = ["AccuracyTraining", "Config", "Planned", "PlannedAttack", "json_schema", "load_config", "parse_config"]

# In either case, as people write them.
ScenarioLetter = Annotated[
    Literal["A", "B", "C", "D", "E"],
    BeforeValidator(lambda name: name.upper() if isinstance(name, str) else name),
]
DEFAULT_ATTACKS = ("fc-inversion", "inverting-gradients")
# The strongest measured where batch normalisation uses stored statistics and nothing was trained yet; on a trained
# network the others are stronger, see docs/papers/agic.md.
RESIDUAL_ATTACKS = (*DEFAULT_ATTACKS, "agic:schedule=held")
Duration = Annotated[float, BeforeValidator(parse_duration, json_schema_input_type=float | str)]


def _parse_memory(value: object) -> object:
    return 0 if is_no_limit(value) else value


TimeLimit = Annotated[float, BeforeValidator(parse_time_limit, json_schema_input_type=float | str)]
MemoryLimit = Annotated[int, Field(ge=0), BeforeValidator(_parse_memory, json_schema_input_type=int | str)]


class AccuracyTraining(Settings):
    """The short training that tells what a defence costs in accuracy, as `leakscope.federated.train_with` takes it.

    `seeds` are one training each, by default the first of the audit's seeds alone. `how` is "federated", or "central"
    for one client with all examples; `share` is what clients send.
    """

    rounds: Positive = 100
    clients: Positive = 4
    batch_size: Positive = 16
    lr: float = Field(default=0.1, gt=0)
    examples: Positive = 2_000
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] | None = None
    how: Literal["federated", "central"] = "federated"
    share: Literal["gradient", "delta"] = "gradient"

    @property
    def shards(self) -> int:
        """How many clients the examples are dealt to."""
        return 1 if self.how == "central" else self.clients

    @model_validator(mode="after")
    def _check_seeds(self) -> AccuracyTraining:
        if self.seeds is not None and len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"seeds must differ, got {list(self.seeds)}; name each once")
        return self


class Config(Settings):
    """A grid: models × data × attacks × defences × scenarios × seeds.

    Attacks and defences are specs such as `prune:fraction=0.9`; defences may be chained with
    `+`. `fail_above` is the gate that status and exit code follow: failed when an undefended example comes
    back above that many decibels; where it is not given, `threshold_psnr` is. `local` is how a client trains
    before it shares; without it one gradient is shared. `rounds` is how often the server asks the same
    clients, by default as often as an attack needs. Residual networks with stored statistics are
    attacked by `agic:schedule=held` too, unless `attacks` are named. `size` is a side, or height and width. `bounds`,
    `one_hot`, `normalise` and `classes` are as on the command line. `timeout` (of one cell) and `memory_mb` (of all
    workers) are 0 for no limit; without them `leakscope.audits.limits` chooses. `budget` is wall time to split over
    the cells; `planned` is what it came to, written by the run itself so that continuing it uses the same numbers.
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
    one_hot: str | None = None
    split: Literal["train", "test", "all"] = "test"
    victims: Positive = 4
    batch_size: Positive = 1
    attacks: tuple[str, ...] = DEFAULT_ATTACKS
    defences: tuple[str, ...] = ("none",)
    adaptive: bool = True
    scenarios: tuple[ScenarioLetter, ...] = ("C",)
    seeds: tuple[int, ...] = (0,)
    local: LocalTraining | None = None
    rounds: Positive | None = None
    utility: AccuracyTraining | None = AccuracyTraining()
    threshold_psnr: float = 20.0
    fail_above: float | None = None
    lpips: bool = False
    show_images: bool | None = None
    workers: Positive | None = None
    timeout: TimeLimit | None = None
    memory_mb: MemoryLimit | None = None
    budget: Duration | None = None
    planned: Planned | None = None

    @property
    def gate(self) -> float:
        """PSNR in dB above which an undefended example fails the audit: `fail_above`, else `threshold_psnr`."""
        return self.threshold_psnr if self.fail_above is None else self.fail_above

    @property
    def has_gate(self) -> bool:
        """Whether the user set a gate: without one a leak is a finding, and no reason to fail."""
        return self.fail_above is not None

    @model_validator(mode="before")
    @classmethod
    def _attack_residual_networks(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "attacks" in values or values.get("mode") == "train":
            return values
        models = values.get("models")
        named = models if isinstance(models, list | tuple) else ()
        residual = any(isinstance(name, str) and name.startswith("resnet") for name in named)
        return {**values, "attacks": RESIDUAL_ATTACKS} if residual else values


def load_config(path: str | Path, *, allow_code: bool = False, checking: bool = True) -> Config:
    """Read a YAML file; a misspelt key is an error that names the nearest right one.

    A file may come from anyone: code in it is refused, unless `allow_code` says that leakscope wrote it.
    Without `checking` names are only compared: a run folder keeps the names of private data, not where they are.
    """
    found = read_yaml(path)
    if not isinstance(found, dict):
        raise BadInputError(f"{path} must hold a mapping of settings, got {type(found).__name__}")
    return parse_config(found, source=str(path), allow_code=allow_code, checking=checking)


def parse_config(
    values: dict[str, Any], *, source: str = "the configuration", allow_code: bool = False, checking: bool = True
) -> Config:
    """Check settings against the schema.

    Args:
        values: Settings by name.
        source: Where they come from, for messages.
        allow_code: Whether models, data, attacks and defences may be `package.module:function`: only where the
            user wrote them, on the command line or in a program, and never a file.
        checking: Whether names and options must be known.
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
    if checking:
        check_config(config, source=source)
    return config


def check_config(config: Config, *, source: str = "the configuration") -> None:
    """Refuse names, options and numbers that cannot work; all that can be told without importing torch."""
    for name in config.models:
        catalogue.check_network(name)
    for name in config.data:
        catalogue.check_data(name)
    for spec in config.attacks:
        catalogue.check_spec("attack", spec)
    for spec in config.defences:
        catalogue.check_spec("defence", spec)
    parse_one_hot(config.one_hot)
    catalogue.refuse_non_finite(f"{source}: model_options", config.model_options)
    for name in config.model_options:
        # Those of another known network are for the day when a file is used with it.
        if name not in config.models and name not in catalogue.NETWORKS:
            raise UsageError(f"{source}: model_options: unknown model {name!r}.{suggest(name, catalogue.NETWORKS)}")


def check_before_torch(config: Config, *, workers: int | None = None, on: str = PROCESSES) -> None:
    """Refuse what a run would refuse after it has imported everything: values, files and code that are not there."""
    check_workers(config.workers if workers is None else workers, on=on)
    for axis in ("models", "data", "attacks", "defences", "scenarios", "seeds"):
        if not config.model_dump(include={axis})[axis]:
            raise UsageError(f"the configuration names no {axis}; expected at least one")
    if config.weights is not None and not os.path.lexists(config.weights):
        raise BadInputError(f"cannot read the weights {config.weights}: {os.strerror(errno.ENOENT)}; check the path")
    if config.size is not None:
        height_width(config.size, largest=LARGEST_SIDE)
    if config.bounds is not None:
        read_ranges(config.bounds)
    if config.normalise is not None:
        find_constants(config.normalise)
    for name in config.data:
        catalogue.check_data_exist(name)
    for _option, name in _list_code(config):
        for part in filter(names_code, split_chain(name)):
            check_findable(part)


def check_workers(workers: int | None, *, on: str = PROCESSES) -> None:
    """Refuse a number of workers below 1, none for a cluster that others share, and a place that is none."""
    check_execution(on)
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be ≥ 1, got {workers}; leave it out for one per core")
    if workers is None and is_elsewhere(on):
        raise UsageError(f"on {on}, say how many of its processors to use; expected workers, got none")


def _list_code(config: Config) -> list[tuple[str, str]]:
    """Functions of the user's own, each with the option that names it."""
    named = [("model", name) for name in config.models if is_code(name)]
    named += [("data", name) for name in config.data if catalogue.is_data_code(name)]
    named += [("attack", spec) for spec in config.attacks if names_code(spec)]
    return named + [("defence", spec) for spec in config.defences if names_code(spec)]


def _refuse_code(config: Config, source: str) -> None:
    for option, name in _list_code(config):
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
