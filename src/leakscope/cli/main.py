"""Commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import sys

import typer

from leakscope.cli.attack import attack
from leakscope.cli.audit import audit
from leakscope.cli.doctor import doctor
from leakscope.cli.listing import list_names
from leakscope.cli.prior import app as prior
from leakscope.cli.profile import profile
from leakscope.cli.report import report
from leakscope.errors import LeakscopeError
from leakscope.version import __version__

app = typer.Typer(
    name="leakscope",
    help="Measures what shared gradients and model updates give away, and what it costs to stop it.",
    epilog="Example: leakscope audit --data digits --model mlp --defence prune:fraction=0.9 --out runs/mine",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(audit)
app.command()(attack)
app.command("list")(list_names)
app.command()(profile)
app.command()(report)
app.add_typer(prior)
app.command()(doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"leakscope {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    """Options before the command."""


def main() -> None:
    """Run a command; a known error is one line on standard error and its exit code."""
    try:
        app()
    except LeakscopeError as error:
        print(f"leakscope: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("leakscope: stopped; what was finished stays finished", file=sys.stderr)
        sys.exit(130)
