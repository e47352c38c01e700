"""Commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
import traceback

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

# As in sysexits.h: a fault of the program itself.
INTERNAL_ERROR = 70
DEBUG = "LEAKSCOPE_DEBUG"
_LONGEST_MESSAGE = 300

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
    """Run a command; any error is one line on standard error and an exit code."""
    try:
        app()
    except LeakscopeError as error:
        print(f"leakscope: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("leakscope: stopped; what was finished stays finished", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        # Python would exit with 1, which means a leak above the gate.
        if os.environ.get(DEBUG):
            traceback.print_exc()
        message = next(iter(str(error).splitlines()), "")[:_LONGEST_MESSAGE]
        print(
            f"leakscope: internal error ({type(error).__name__}: {message}); please report it with the command "
            f"you ran; {DEBUG}=1 shows the traceback",
            file=sys.stderr,
        )
        sys.exit(INTERNAL_ERROR)
