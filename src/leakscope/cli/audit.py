"""`leakscope audit`: a whole grid, and its report."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from leakscope.cli.failures import use_run_folder
from leakscope.cli.file_budget import budget_option
from leakscope.cli.local_options import parse_local
from leakscope.cli.price import print_bill
from leakscope.cli.targets import check_target, write_build_files
from leakscope.cli.terminal import echo
from leakscope.text import printable

if TYPE_CHECKING:
    from leakscope.audits import CampaignResult, Config
    from leakscope.report import CellRecord, Summary

_HEADINGS = ("model", "data", "attack", "defence", "attacker", "scenario", "worst dB", "gain dB", "median dB", "status")
_WORDS = {
    "not-run": "not run",
    "error": "failed",
    "timeout": "timed out",
    "oom": "out of memory",
    "nan": "not a number",
}


def audit(
    config: Path | None = typer.Option(None, help="YAML file with the settings; options below override it."),
    out: Path = typer.Option(Path("runs/audit"), help="Directory of the run; the same command continues it."),
    model: list[str] | None = typer.Option(
        None, help="Reference network, or package.module:function that returns yours; may be given several times."
    ),
    weights: Path | None = typer.Option(None, help="Weights of the network: .safetensors, .pt, .pth or .npz."),
    mode: str | None = typer.Option(None, help="train or eval: batch normalisation and dropout (default eval)."),
    classes: int | None = typer.Option(None, help="Classes of a reference network (default: those of the data)."),
    normalise: str | None = typer.Option(None, help="Constants of a reference network's first layer, e.g. cifar10."),
    data: list[str] | None = typer.Option(
        None, help="Data set, folder of pictures, .npz file, or package.module:function for data of your own."
    ),
    size: str | None = typer.Option(None, help="Bring pictures to this side, or height x width, e.g. 32 or 32x100."),
    bounds: str | None = typer.Option(
        None,
        help="Range of your own data, low,high, or 18,90;0,1 by column; none where it has none (default 0,1).",
    ),
    one_hot: str | None = typer.Option(
        None, help="Columns of a table that are one-hot, first-last from 0, e.g. 2-5,6-8; beside those its file names."
    ),
    attack: list[str] | None = typer.Option(
        None, help="Attack with options, e.g. idlg:steps=100; or package.module:function:option=value."
    ),
    defence: list[str] | None = typer.Option(
        None, help="Defence with options, e.g. clip:norm=1+gaussian-noise:sigma=0.01; or package.module:function."
    ),
    scenario: list[str] | None = typer.Option(None, help="What the server knows: A (everything) to E (nothing)."),
    seed: list[int] | None = typer.Option(None, help="Seed; may be given several times."),
    victims: int | None = typer.Option(None, help="Clients attacked in each cell."),
    batch_size: int | None = typer.Option(None, help="Examples behind each update."),
    local: str | None = typer.Option(
        None, help="How clients train, e.g. lr=0.01,epochs=2,batch=8,momentum=0.9 (default: one gradient)."
    ),
    rounds: int | None = typer.Option(None, help="How often the server asks the same clients (default 1)."),
    fail_above: float | None = typer.Option(
        None, help="The gate: exit with 1 when an undefended image exceeds this PSNR in dB."
    ),
    show_images: bool | None = typer.Option(
        None, help="Put private images into the report (default: embedded data only)."
    ),
    on: str = typer.Option(
        "processes", help="Where cells run: processes, ray (a cluster for this run), or a cluster, ray://host:port."
    ),
    workers: int | None = typer.Option(
        None, help="Processes, or workers on Ray, of one thread (default: one per core of this machine)."
    ),
    retry_failed: bool = typer.Option(False, help="Run cells again that ended in error, timeout or oom."),
    budget: str | None = typer.Option(
        None, help="Wall time to split over the cells, e.g. 90s, 2m, 1h30m; attacks are shortened to fit."
    ),
    timeout: str | None = typer.Option(
        None, help="Longest time of a cell, e.g. 90s, 2h; none for no limit (default 12h, or 3 times the budget)."
    ),
    memory_mb: str | None = typer.Option(
        None, help="Memory of all workers in MB; none for no limit (default: nine tenths of what is free)."
    ),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Print the cells, with time and memory from short sample runs, and stop."
    ),
    junit: Path | None = typer.Option(None, help="Also write the results as JUnit XML to this file."),
    sarif: Path | None = typer.Option(None, help="Also write the findings as SARIF 2.1.0 to this file."),
    budget_mb: float | None = budget_option(),
    schema: bool = typer.Option(False, "--schema", help="Print the JSON schema of the YAML file and stop."),
    as_json: bool = typer.Option(False, "--json", help="Print the summary as JSON."),
    quiet: bool = typer.Option(False, help="No progress."),
) -> None:
    """Attack a model's updates under defences, and write one report.

    Example: leakscope audit --model mynet:build --weights net.pt --data photos --size 32
    --attack inverting-gradients --defence none --defence prune:fraction=0.9 --out runs/mine
    """
    began = time.monotonic()
    # Only what needs no torch up to the marked line: a wrong option is answered at once.
    from leakscope.audits import config as configuration

    if schema:
        echo(json.dumps(configuration.json_schema(), indent=1))
        return
    given = {
        "models": model,
        "weights": None if weights is None else str(weights),
        "mode": mode,
        "classes": classes,
        "normalise": normalise,
        "data": data,
        "size": None if size is None else _parse_size(size),
        "bounds": bounds,
        "one_hot": one_hot,
        "attacks": attack,
        "defences": defence,
        "scenarios": scenario,
        "seeds": seed,
        "victims": victims,
        "batch_size": batch_size,
        "local": None if local is None else parse_local(local),
        "rounds": rounds,
        "fail_above": fail_above,
        "budget": budget,
        "timeout": timeout,
        "memory_mb": memory_mb,
    }
    settings = _settings(config, given)
    configuration.check_before_torch(settings, workers=workers, on=on)
    for option, path in (("--junit", junit), ("--sarif", sarif)):
        if path is not None:
            check_target(path, option)
    # From here on torch is imported.
    from leakscope import audits
    from leakscope.cli.loading import name_options

    use_run_folder(None if dry_run else out)
    with name_options("size"):
        if dry_run:
            bill = audits.price_campaign(settings, show_images=show_images, workers=workers, began=began)
            print_bill(bill, as_json=as_json)
            return
        result = audits.run_campaign(
            settings,
            out,
            show_images=show_images,
            workers=workers,
            on=on,
            quiet=quiet,
            retry_failed=retry_failed,
            command="leakscope " + shlex.join(sys.argv[1:]),
        )
    written = write_build_files(
        result.summary,
        junit=junit,
        sarif=sarif,
        location=config or weights or out / "config.yaml",
        exit_code=result.exit_code,
    )
    if as_json:
        echo(result.summary.to_json())
    else:
        _print_table(result)
        for line in written:
            echo(line)
    raise typer.Exit(result.exit_code)


def _settings(path: Path | None, overrides: dict[str, Any]) -> Config:
    """The file's settings, which may hold no code, under those of the command line, which may."""
    from leakscope.audits.config import load_config, parse_config

    # What the file leaves out stays open: the attacks of a default depend on the network.
    base = load_config(path).model_dump(exclude_unset=True) if path else {}
    given = {key: value for key, value in overrides.items() if value not in (None, [], ())}
    return parse_config({**base, **given}, source="the command line", allow_code=True)


def _parse_size(text: str) -> int | tuple[int, int]:
    from leakscope.errors import UsageError

    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.strip().isdecimal() and len(side) < 10 and int(side) > 0 for side in sides):
        raise UsageError(f"--size must be a side or height x width in pixels, as in 32 or 32x100, got {text[:80]!r}")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def _print_table(result: CampaignResult) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from leakscope.report.costs import accuracy_words
    from leakscope.report.remedies import advise
    from leakscope.report.words import remarks

    summary = result.summary
    table = Table(title=escape(summary.title))
    for heading in (*_HEADINGS, *(["remarks"] if any(map(remarks, summary.cells)) else [])):
        table.add_column(heading, justify="right" if "dB" in heading else "left")
    for cell in sorted(summary.cells, key=_worst, reverse=True):
        knowing = "knows it" if cell.adaptive else "–" if cell.defence == "none" else "unaware"
        names = [escape(name) for name in (cell.model, cell.data, cell.attack, cell.defence)]
        table.add_row(
            *names,
            knowing,
            cell.scenario,
            *_decibels(cell),
            cell.status,
            *(["; ".join(told)] if (told := remarks(cell)) else []),
        )
    console = Console(width=None if sys.stdout.isatty() else 160, emoji=False)
    console.print(table)
    for cost in summary.defences:
        console.print(
            escape(f"accuracy of {cost.model} on {cost.data} under {cost.name}: {accuracy_words(cost)}"),
            highlight=False,
        )
    if summary.verdict is not None:
        console.print(f"Grade {summary.verdict.grade}: {escape(summary.verdict.headline)}", highlight=False)
        console.print(escape(summary.verdict.line), highlight=False, soft_wrap=True)
        console.print(escape(advise(summary).words), highlight=False, soft_wrap=True)
    for sentence in (*_counts(summary), *_reasons(summary.cells)):
        console.print(escape(sentence), highlight=False, soft_wrap=True)
    for sentence in summary.budget.caution if summary.budget else ():
        console.print(escape(sentence), highlight=False)
    print(f"report: {printable(result.report)}")


def _decibels(cell: CellRecord) -> list[str]:
    """Of the worst example PSNR and gain over the best null, and the median."""
    from leakscope.report.evidence import group

    stats = cell.stats.get("psnr")
    values = (stats.worst, group([cell]).worst_gain, stats.median) if stats else (None, None, None)
    return ["–" if value is None else f"{value:.1f}" for value in values]


def _counts(summary: Summary) -> list[str]:
    if summary.counts is None:
        return []
    others = [f"{count} {_WORDS.get(status, status)}" for status, count in summary.counts.failed.items()]
    return [", ".join([f"{summary.counts.ok} of {summary.counts.total} cells ok", *others])]


def _reasons(cells: list[CellRecord]) -> list[str]:
    """Why cells have no result: each attack's reasons once, with the number of cells."""
    found = Counter((cell.status, cell.attack, _reason(cell)) for cell in cells if cell.error)
    return [
        f"{_WORDS.get(status, status)}: {attack}: {reason} ({count} {'cell' if count == 1 else 'cells'})"
        for (status, attack, reason), count in found.items()
    ]


def _reason(cell: CellRecord) -> str | None:
    # The type of an exception helps where it was not expected; a refusal explains itself.
    return cell.error if cell.status == "error" else cell.message or cell.error


def _worst(cell: CellRecord) -> float:
    stats = cell.stats.get("psnr")
    return float("-inf") if stats is None or stats.worst is None else stats.worst
