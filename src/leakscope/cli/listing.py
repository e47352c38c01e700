"""`leakscope list`: every name that can be used."""

from __future__ import annotations

import json

import typer

KINDS = ("attacks", "defences", "models", "data", "scenarios")


def list_names(
    kind: str | None = typer.Argument(None, help=f"One of {', '.join(KINDS)}; all without it."),
    as_json: bool = typer.Option(False, "--json", help="Print as JSON."),
) -> None:
    """List attacks, defences, models, data sets and scenarios.

    Example: leakscope list attacks
    """
    from leakscope.errors import UsageError, suggest

    if kind is not None and kind not in KINDS:
        raise UsageError(f"unknown kind {kind!r}.{suggest(kind, KINDS)}")
    tables = {name: rows for name, rows in _tables().items() if kind in (None, name)}
    if as_json:
        typer.echo(json.dumps(tables, indent=1))
        return
    for name, rows in tables.items():
        typer.echo(name)
        for row, text in rows.items():
            typer.echo(f"  {row:22} {text}")


def _tables() -> dict[str, dict[str, str]]:
    from leakscope import data, models
    from leakscope.observation.scenario import SCENARIOS
    from leakscope.registry import ATTACKS, DEFENCES

    return {
        "attacks": {name: _first_line(recipe) for name, recipe in ATTACKS.items()},
        "defences": {name: _first_line(recipe) for name, recipe in DEFENCES.items()},
        "models": dict.fromkeys(models.names(), ""),
        "data": {name: data.info(name).description for name in data.names()},
        "scenarios": {name: rung.text for name, rung in SCENARIOS.items()},
    }


def _first_line(function: object) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0]
