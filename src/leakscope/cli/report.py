"""`leakscope report`: write the page of a run again."""

from __future__ import annotations

from pathlib import Path

import typer


def report(
    directory: Path = typer.Argument(help="Directory of a run."),
    show_images: bool = typer.Option(False, help="Put private images into the report, where the run kept them."),
) -> None:
    """Render report.html again from a run's summary.json.

    Example: leakscope report runs/mine --show-images
    """
    from leakscope.report import write_report

    typer.echo(f"report: {write_report(directory, show_images=show_images)}")
