"""A number that is none is refused before anything runs, in every field that a user can write."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from leakscope import catalogue
from leakscope.audits.config import Config, load_config, parse_config
from leakscope.errors import LeakscopeError, UsageError
from leakscope.local_training import LocalTraining

_BAD = ("nan", "inf", "-inf")


def _places(kind: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every place below a type where a number may stand, with a value of the right shape around it."""
    origin = typing.get_origin(kind)
    if kind in (int, float):
        yield path, lambda value: value
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            yield from _below(name, field.annotation, path)
    elif is_dataclass(kind):
        for field in dataclass_fields(kind):
            yield from _below(field.name, typing.get_type_hints(kind)[field.name], path)
    elif origin is tuple:
        parts = typing.get_args(kind)
        count = 1 if parts[-1] is Ellipsis else len(parts)
        for below, wrap in _places(parts[0], path):
            yield below, lambda value, wrap=wrap: [wrap(value)] * count
    elif origin is typing.Annotated:
        yield from _places(typing.get_args(kind)[0], path)
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(kind):
            yield from _places(part, path)


def _below(name: str, kind: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for below, wrap in _places(kind, (*path, name)):
        yield below, lambda value, wrap=wrap: {name: wrap(value)}


_NEEDED = {"local": {"lr": 0.1}}
NUMBERS = {(".".join(path), i): wrap for i, (path, wrap) in enumerate(_places(Config, ()))}


def test_every_number_of_the_configuration_is_found() -> None:
    names = {name for name, _ in NUMBERS}
    assert {"timeout", "budget", "threshold_psnr", "fail_above", "victims", "seeds", "size", "utility.lr"} <= names
    assert {"local.lr", "local.momentum", "local.betas", "local.weight_decay", "workers", "rounds"} <= names


@pytest.mark.parametrize("bad", _BAD)
@pytest.mark.parametrize("place", NUMBERS, ids=lambda place: f"{place[0]}-{place[1]}")
def test_a_number_that_is_none_is_refused_by_the_name_of_its_field(place: tuple[str, int], bad: str) -> None:
    values = NUMBERS[place](float(bad))
    for name, needed in _NEEDED.items():
        if name in values:
            values[name] = {**needed, **values[name]}
    with pytest.raises(UsageError) as caught:
        parse_config(values)
    assert place[0].split(".")[-1] in str(caught.value) or place[0].split(".")[0] in str(caught.value)


@pytest.mark.parametrize("text", ["timeout: .inf", "threshold_psnr: .nan", "fail_above: -.inf", "budget: .inf"])
def test_yaml_numbers_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=text.split(":")[0]):
        load_config(path)


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf", "1e999", "-1e999", "[1.0, 1e999]"])
def test_numbers_of_specs_and_networks_are_refused(bad: str) -> None:
    with pytest.raises(UsageError, match="fraction must be a finite number"):
        parse_config({"defences": [f"clip:norm=1+prune:fraction={bad.split(',')[-1].strip(' []')}"]})
    with pytest.raises(UsageError, match="'inverting-gradients': tv must be a finite number"):
        parse_config({"attacks": [f"inverting-gradients:tv={bad.split(',')[-1].strip(' []')}"]})
    value = math.nan if bad == "nan" else [1.0, math.inf]
    with pytest.raises(UsageError, match=r"model_options\.mlp\.hidden must be a finite number"):
        parse_config({"model_options": {"mlp": {"hidden": value}}})


@pytest.mark.parametrize("name", [field.name for field in dataclass_fields(LocalTraining)])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_local_training_refuses_them_too(name: str, bad: float) -> None:
    hint = typing.get_type_hints(LocalTraining)[name]
    if float not in (hint, *typing.get_args(hint)):
        pytest.skip("no fraction")
    values = {"lr": 0.1, name: (bad, bad) if name == "betas" else bad}
    with pytest.raises(LeakscopeError):
        LocalTraining(**values)


def test_the_catalogue_is_what_there_is() -> None:
    from leakscope import data, models, registry

    assert set(catalogue.NETWORKS) == set(models.names())
    assert set(catalogue.DATA_SETS) == set(data.names())
    assert list(catalogue.ATTACKS) == list(registry.ATTACKS)
    assert list(catalogue.DEFENCES) == list(registry.DEFENCES)


@pytest.mark.parametrize("kind", ["attack", "defence"])
def test_declared_options_are_those_of_the_functions(kind: str) -> None:
    import inspect

    from leakscope import registry

    for name, function in (registry.ATTACKS if kind == "attack" else registry.DEFENCES).items():
        real = inspect.signature(function).parameters
        declared = catalogue.declared_options(kind, name)
        assert list(declared) == list(real), name
        for option, text in declared.items():
            assert (text is None) == (real[option].default is inspect.Parameter.empty)
            if text is not None:
                assert eval(text, vars(inspect.getmodule(function))) == real[option].default, (name, option)
