"""`leakscope compare`: what changed from one run to another."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from leakscope.cli.terminal import echo

if TYPE_CHECKING:
    from leakscope.report.comparison import Comparison


def compare(
    before: Path = typer.Argument(help="Earlier run: its directory, or its summary.json."),
    after: Path = typer.Argument(help="Later run: its directory, or its summary.json."),
    everything: bool = typer.Option(False, "--all", help="List unchanged results, too."),
    as_json: bool = typer.Option(False, "--json", help="Print the comparison as JSON."),
) -> None:
    """Compare two runs: what is new, gone, better or worse, and the accuracy.

    Exits with 1 when a result above the second run's gate got worse or is new, with 3 when a result of the first run
    ended without evidence in the second, else with 0.

    Example: leakscope compare runs/release-1 runs/release-2
    """
    from leakscope.report.comparison import compare_runs
    from leakscope.report.render import read_summary

    found = compare_runs(
        *(read_summary(path / "summary.json" if os.path.isdir(path) else path) for path in (before, after))
    )
    if as_json:
        echo(json.dumps(found.to_dict(), indent=1, allow_nan=False))
    else:
        _print(found, everything=everything)
    raise typer.Exit(found.exit_code)


def _print(found: Comparison, *, everything: bool) -> None:
    from leakscope.report.comparison import CHANGES, MEANING, change_words

    if found.threshold_before != found.threshold_after:
        echo(
            f"The runs have different gates: {found.threshold_before:g} dB and {found.threshold_after:g} dB. "
            "Each result is held against its own."
        )
    for change in CHANGES:
        mine = [cell for cell in found.cells if cell.change == change]
        if not mine:
            continue
        echo(f"{change} ({len(mine)}): {MEANING[change]}")
        for cell in mine if everything or change != "unchanged" else []:
            echo(f"  {change_words(cell)}  {cell.name}")
    for row in found.accuracies:
        if everything or row.before != row.after:
            echo(f"accuracy of {row.name}: {_share(row.before)} → {_share(row.after)}")
    echo(found.line)


def _share(value: float | None) -> str:
    return "not measured" if value is None else f"{100 * value:.1f} %"
