"""The estimate of `leakscope audit --dry-run` on a terminal, or as JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from leakscope.cli.terminal import echo

if TYPE_CHECKING:
    from rich.table import Table

    from leakscope.audits import Bill, Line

_WIDE = 160
_BUSY = 1.5


def print_bill(bill: Bill, *, as_json: bool) -> None:
    """Print cells, the price of each attack, totals, and what a budget leaves out."""
    if as_json:
        echo(json.dumps(bill.to_dict(), indent=1))
        return
    from rich.console import Console

    for cell in bill.plan.cells:
        echo(f"{cell.key[:12]}  {cell.label}")
    for cell in bill.plan.left_out:
        echo(f"not run       {cell.label}")
    Console(width=None if sys.stdout.isatty() else _WIDE, emoji=False).print(_table(bill))
    for line in bill.lines:
        for note in line.notes:
            echo(f"{line.subject}, {line.attack}: {note}")
    _print_totals(bill)


def _table(bill: Bill) -> Table:
    from rich.markup import escape
    from rich.table import Table

    from leakscope.audits.durations import duration

    table = Table(title="Estimate")
    headings = ("model and data", "attack", "cells", "steps", "starts", "s/cell", "total", "at most", "MB")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place > 1 else "left")
    for line in bill.lines:
        names = [escape(line.subject), escape(line.attack), str(line.cells)]
        if _is_idle(line):
            table.add_row(*names, "–", "–", "0", line.notes[0].split(":")[0] if line.notes else "nothing", "", "")
            continue
        table.add_row(
            *names,
            _steps(line),
            str(line.restarts),
            f"{line.seconds_per_cell:.3g}",
            duration(line.seconds),
            duration(line.at_most),
            f"{line.mb:.0f}",
        )
    return table


def _is_idle(line: Line) -> bool:
    return line.at_most == 0


def _steps(line: Line) -> str:
    if line.steps is None:
        return "closed form"
    return str(line.steps) if line.planned_steps == line.steps else f"{line.planned_steps} of {line.steps}"


def _print_totals(bill: Bill) -> None:
    from leakscope.audits.durations import duration

    processes = "1 worker" if bill.workers == 1 else f"{bill.workers} workers"
    echo(
        f"about {duration(bill.seconds)} with {processes}, at most {duration(bill.at_most)} if every attack is tried "
        f"again; about {bill.mb:.0f} MB in all; from {bill.prices.groups} sample runs of 3 steps on random data, "
        f"in {duration(bill.prices.seconds)}"
    )
    echo(f"of this {duration(bill.overhead.seconds)} are not for cells: {bill.overhead}")
    slowdown = bill.prices.slowdown
    if slowdown > _BUSY:
        echo(f"this machine is busy: sample runs took {slowdown:.1f} times as long as their own work")
    if bill.budget is not None:
        echo(
            f"a budget of {duration(bill.budget)} also pays for sample runs and report; a shortened attack is a weaker "
            f"attacker; {len(bill.plan.left_out)} cells are left out"
        )
    echo(
        f"{len(bill.plan.attacks)} attack cells, {len(bill.plan.trainings)} accuracy cells; nothing was run but samples"
    )
