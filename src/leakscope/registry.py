"""Turns the names of the catalogue into attacks and defences. The only place where a string becomes code."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from leakscope import catalogue
from leakscope.attack import Attack
from leakscope.catalogue import check_options, parse_spec, split_chain
from leakscope.defence import Defence
from leakscope.defences import chain
from leakscope.errors import UsageError
from leakscope.user_code import call, import_function, is_code

_Kind = TypeVar("_Kind", Attack, Defence)


def _functions(package: str, places: dict[str, str]) -> dict[str, Callable[..., Any]]:
    found = {}
    for name, place in places.items():
        module, _, function = place.rpartition(".")
        found[name] = vars(importlib.import_module(f"leakscope.{package}.{module}"))[function]
    return found


ATTACKS: dict[str, Callable[..., Attack]] = _functions("attacks", catalogue.ATTACKS)
DEFENCES: dict[str, Callable[..., Defence]] = _functions("defences", catalogue.DEFENCES)


def get_attack(name: str, **options: Any) -> Attack:
    """Return the attack `name` with the paper's defaults, changed by `options`."""
    if is_code(name):
        return _build_own(name, options, Attack, "a function that returns a leakscope.attack.Attack")
    return _build("attack", ATTACKS, name, options)


def get_defence(name: str, **options: Any) -> Defence:
    """Return the defence `name`; `parts=[…]` with the name "chain" applies several in turn."""
    if name == "chain":
        unknown = sorted(set(options) - {"parts"})
        if unknown:
            raise UsageError(f"defence 'chain' has no option {unknown[0]!r}; give parts=[…], the defences in order")
        return chain.chain(*(as_defence(part) for part in options.get("parts", ())))
    if is_code(name):
        return _build_own(name, options, Defence, "a function that returns a leakscope.defence.Defence")
    return _build("defence", DEFENCES, name, options)


def attack_from_spec(spec: str) -> Attack:
    """Build an attack from `name:option=value,…`."""
    name, options = parse_spec(spec)
    return get_attack(name, **options)


def defence_from_spec(spec: str) -> Defence | None:
    """Build a defence from `name:option=value,…`, several joined by `+`; "none" is None."""
    if spec == catalogue.NONE:
        return None
    parts = [parse_spec(part) for part in split_chain(spec)]
    built = [get_defence(name, **options) for name, options in parts]
    return built[0] if len(built) == 1 else chain.chain(*built)


def as_defence(value: str | Defence) -> Defence:
    """A defence by its spec, or as it is; "none" is the empty chain."""
    if not isinstance(value, str):
        return value
    return defence_from_spec(value) or chain.chain()


def _build(kind: str, table: dict[str, Callable[..., Any]], name: str, options: dict[str, Any]) -> Any:
    check_options(kind, name, options)
    try:
        return table[name](**options)
    except TypeError as error:
        raise UsageError(f"{kind} {name!r} cannot be built with {options}: {error}") from error


def _build_own(name: str, options: dict[str, Any], kind: type[_Kind], expected: str) -> _Kind:
    function: Callable[..., Any] = import_function(name, allow_code=True, expected=expected)
    found = call(name, lambda: function(**options), expected=expected)
    if not isinstance(found, kind):
        raise UsageError(f"{name!r} returned a {type(found).__name__}; expected {expected}")
    return found
