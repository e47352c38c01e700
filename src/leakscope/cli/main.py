"""Commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import shlex
import sys
import traceback

import click
import typer

from leakscope.cli.attack import attack
from leakscope.cli.audit import audit
from leakscope.cli.compare import compare
from leakscope.cli.doctor import doctor
from leakscope.cli.failures import run_folder, use_run_folder, write_log
from leakscope.cli.inspect import inspect
from leakscope.cli.listing import list_names
from leakscope.cli.prior import app as prior
from leakscope.cli.profile import profile
from leakscope.cli.report import report
from leakscope.cli.reproduce import reproduce
from leakscope.cli.search import search
from leakscope.cli.terminal import OutputError, echo, safe_streams
from leakscope.cli.train import train
from leakscope.errors import LeakscopeError, UsageError
from leakscope.text import printable, printable_lines
from leakscope.version import __version__

# As in sysexits.h: a fault of the program itself.
INTERNAL_ERROR = 70
# 128 and the number of the signal: Ctrl-C, SIGTERM.
INTERRUPTED, TERMINATED = 130, 143
DEBUG = "LEAKSCOPE_DEBUG"
_LONGEST_MESSAGE = 300

app = typer.Typer(
    name="leakscope",
    help="Measures what shared gradients and model updates give away, and what it costs to stop it.",
    epilog="Example: leakscope audit --data digits --model mlp --defence prune:fraction=0.9 --out runs/mine",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    # click suggests as well.
    suggest_commands=False,
)
app.command()(audit)
app.command()(attack)
app.command()(compare)
app.command("list")(list_names)
app.command()(inspect)
app.command()(profile)
app.command()(search)
app.command()(train)
app.command()(report)
app.command()(reproduce)
app.add_typer(prior)
app.command()(doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        echo(f"leakscope {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    """Options before the command."""


def _check_words(words: list[str]) -> None:
    # No shell passes one on, but a program that calls `main` may, and no path can hold it.
    if odd := next((word for word in words if "\0" in word), None):
        raise UsageError(f"the argument {odd[:80]!r} holds a NUL character; leave it out")


def main() -> None:
    """Run a command; any error is one line on standard error and an exit code."""
    use_run_folder(None)
    try:
        with safe_streams():
            code = _run()
            if code in (INTERRUPTED, TERMINATED):
                _say_stopped()
    except LeakscopeError as error:
        # Only standard output itself gets here.
        _complain(str(error))
        code = error.exit_code
    except Exception as error:
        # The last resort: what deals with errors failed itself, and Python's own way out is 1.
        print(f"leakscope: internal error ({type(error).__name__}); please report it", file=sys.__stderr__)
        code = INTERNAL_ERROR
    sys.exit(code)


def _run() -> int:
    """The exit code of the command; click's own mode of ending programs uses 1, which means a leak above the gate."""
    try:
        _check_words(sys.argv[1:])
        found = app(standalone_mode=False)
    except OutputError:
        raise
    except click.ClickException as error:
        # Without a command the help was shown, and nothing is left to say.
        if error.format_message().strip():
            _complain(_explain_usage(error))
        return error.exit_code if error.exit_code > 1 else LeakscopeError.exit_code
    except LeakscopeError as error:
        _complain(str(error))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    # SystemExit, too: nothing in leakscope raises it, and what does may mean anything by its number.
    except (Exception, SystemExit) as error:
        return _report_internal(error)
    return found if isinstance(found, int) else 0


def _say_stopped() -> None:
    same = f"; the same command continues: {shlex.join(['leakscope', *sys.argv[1:]])}" if run_folder() else ""
    _complain(f"stopped; what was finished stays finished{same}")


def _explain_usage(error: click.ClickException) -> str:
    """One line, as for every other error; `click` would draw a box."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    remedy = "" if context is None else f"; try '{context.command_path} --help'"
    return f"{' '.join(error.format_message().split()).rstrip('.')}{remedy}"


def _report_internal(error: BaseException) -> int:
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    message = printable(next(iter(str(error).splitlines()), ""), most=_LONGEST_MESSAGE)
    # Of the command only its name: what follows may name people and places.
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    path = write_log(error, command=next((word for word in sys.argv[1:2] if word in known), "…"))
    log = "no log could be written" if path is None else f"log: {path}"
    _complain(f"internal error ({type(error).__name__}: {message}); please report it with its log; {log}")
    return INTERNAL_ERROR


def _complain(message: str) -> None:
    print(f"leakscope: {printable_lines(message)}", file=sys.stderr)
