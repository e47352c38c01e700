"""`leakscope report`: write the page of a run again."""

from __future__ import annotations

from pathlib import Path

import typer

from leakscope.cli.targets import check_target, write_build_files
from leakscope.cli.terminal import echo


def report(
    directory: Path = typer.Argument(help="Directory of a run."),
    show_images: bool = typer.Option(False, help="Put private images into the report, where the run kept them."),
    junit: Path | None = typer.Option(None, help="Also write the results as JUnit XML to this file."),
    sarif: Path | None = typer.Option(None, help="Also write the findings as SARIF 2.1.0 to this file."),
) -> None:
    """Render report.html again from a run's summary.json.

    Example: leakscope report runs/mine --show-images
    """
    for option, path in (("--junit", junit), ("--sarif", sarif)):
        if path is not None:
            check_target(path, option)
    from leakscope.report import write_report

    echo(f"report: {write_report(directory, show_images=show_images)}")
    if junit is not None or sarif is not None:
        _write_build_files(directory, junit=junit, sarif=sarif)


def _write_build_files(directory: Path, *, junit: Path | None, sarif: Path | None) -> None:
    from leakscope.report.checks import NOT_RUN
    from leakscope.report.render import read_summary

    summary = read_summary(directory / "summary.json")
    code = 3 if summary.verdict is None or summary.verdict.exit_code is None else summary.verdict.exit_code
    has_ended = all(cell.status != NOT_RUN for cell in summary.cells)
    lines = write_build_files(
        summary,
        junit=junit,
        sarif=sarif,
        location=directory / "config.yaml",
        exit_code=code if has_ended else -1,
    )
    for line in lines:
        echo(line)
