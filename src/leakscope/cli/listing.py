"""`leakscope list`: every name that can be used, and the options of one."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable

import typer

from leakscope.cli.terminal import echo

KINDS = ("attacks", "defences", "models", "data", "scenarios")
_WITH_OPTIONS = {"attacks": "attack", "defences": "defence"}


def list_names(
    kind: str | None = typer.Argument(None, help=f"One of {', '.join(KINDS)}; all without it."),
    name: str | None = typer.Argument(None, help="An attack or a defence: shows its options with their defaults."),
    as_json: bool = typer.Option(False, "--json", help="Print as JSON."),
) -> None:
    """List attacks, defences, models, data sets and scenarios; or the options of one attack or defence.

    Example: leakscope list attacks inverting-gradients
    """
    from leakscope.errors import UsageError, suggest

    if kind is not None and kind not in KINDS:
        raise UsageError(f"unknown kind {kind!r}.{suggest(kind, KINDS)}")
    if name is not None and kind is not None:
        _show_one(kind, name, as_json=as_json)
        return
    tables = {title: rows() for title, rows in _tables().items() if kind in (None, title)}
    if as_json:
        echo(json.dumps(tables, indent=1))
        return
    for title, rows in tables.items():
        echo(title)
        for row, text in rows.items():
            echo(f"  {row:22} {text}")


def _tables() -> dict[str, Callable[[], dict[str, str]]]:
    """A table for each kind, made when it is asked for: two of them need torch."""
    from leakscope import catalogue

    return {
        "attacks": lambda: {name: catalogue.first_line("attack", name) for name in catalogue.ATTACKS},
        "defences": lambda: {name: catalogue.first_line("defence", name) for name in catalogue.DEFENCES},
        "models": lambda: dict.fromkeys(catalogue.NETWORKS, ""),
        "data": _describe_data,
        "scenarios": _describe_scenarios,
    }


def _describe_data() -> dict[str, str]:
    from leakscope import data

    return {name: data.info(name).description for name in data.names()}


def _describe_scenarios() -> dict[str, str]:
    from leakscope.observation.scenario import SCENARIOS

    return {name: rung.text for name, rung in SCENARIOS.items()}


def _show_one(kind: str, name: str, *, as_json: bool) -> None:
    from leakscope import catalogue
    from leakscope.errors import UsageError

    if kind not in _WITH_OPTIONS:
        raise UsageError(f"{kind} have no options to show; leave out {name!r}")
    single = _WITH_OPTIONS[kind]
    catalogue.check_options(single, name, {})
    options, text = catalogue.declared_options(single, name), catalogue.first_line(single, name)
    paper = _find_paper(single, name)
    if as_json:
        echo(json.dumps({"name": name, "text": text, "options": options, "paper": paper}, indent=1))
        return
    echo(f"{name}: {text}")
    echo("options" if options else "no options")
    for option, default in options.items():
        echo(f"  {option:22} {'must be given' if default is None else default}")
    echo(f"paper: {paper}")


def _find_paper(kind: str, name: str) -> str:
    from leakscope.errors import UsageError
    from leakscope.registry import ATTACKS, DEFENCES

    function = ATTACKS[name] if kind == "attack" else DEFENCES[name]
    try:
        return function().paper
    except UsageError:
        # It cannot be built without an option; its module names the paper.
        return vars(importlib.import_module(function.__module__))["PAPER"]
