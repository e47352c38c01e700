"""`leakscope reproduce`: tables and figures of the papers, measured again."""

from __future__ import annotations

from pathlib import Path

import typer

from leakscope.cli.failures import use_run_folder
from leakscope.cli.terminal import echo
from leakscope.errors import UsageError, suggest

SCALES = ("smoke", "cpu", "paper")


def reproduce(
    names: list[str] | None = typer.Argument(
        None, metavar="NAME…", help="Reproductions such as agic/table-1, a paper's folder such as agic, or all."
    ),
    show_list: bool = typer.Option(False, "--list", help="List every reproduction, what it claims and what it costs."),
    scale: str = typer.Option("cpu", help="smoke (seconds, no evidence), cpu (half an hour on two cores) or paper."),
    workers: int | None = typer.Option(None, help="Processes (default: one per core)."),
    out: Path = typer.Option(Path("runs/reproductions"), help="Directory of the runs; the same command continues."),
    timeout: float = typer.Option(7_200.0, help="Seconds after which a cell is stopped; 0 for no limit."),
    store: bool | None = typer.Option(
        None,
        "--store/--no-store",
        help="Keep results in the checkout and make CLAIMS.md again (default: unless smoke).",
    ),
    retry_failed: bool = typer.Option(False, help="Run cells again that ended in error, timeout or out of memory."),
    claims: bool = typer.Option(False, "--claims", help="Only make CLAIMS.md again, from the results in the checkout."),
    dry_run: bool = typer.Option(False, help="Say what would run and how long it would take; run nothing."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    quiet: bool = typer.Option(False, help="No progress."),
) -> int:
    """Measure tables and figures of the papers again: the paper's number, ours, and whether the claim holds.

    Killed, the same command continues. Exit code 3: some cell did not end well and its recipe does not say why.

    Example: leakscope reproduce agic/table-1 --scale cpu --workers 2
    """
    _check(scale, workers=workers, timeout=timeout, store=store)
    if not names and not (show_list or claims):
        raise UsageError("nothing to reproduce; name reproductions, or all, or use --list")
    # From here on torch is imported.
    from leakscope.cli import reproduce_run
    from leakscope.reproduction.find import choose_recipes, find_checkout, find_recipes

    root = find_checkout()
    recipes = find_recipes(root)
    chosen = choose_recipes(names or ["all"], recipes) if recipes else []
    if show_list:
        echo(reproduce_run.show_list(chosen, root, as_json=as_json))
        return 0
    if claims:
        from leakscope.reproduction.claims import write_claims

        echo(f"claims: {write_claims(root, recipes)}")
        return 0
    if dry_run:
        echo(reproduce_run.show_price(chosen, root, scale=scale, workers=workers, as_json=as_json))
        return 0
    use_run_folder(out)
    text, code = reproduce_run.run_all(
        chosen,
        root,
        out,
        scale=scale,
        workers=workers,
        timeout=timeout or None,
        store=scale != "smoke" if store is None else store,
        retry_failed=retry_failed,
        quiet=quiet,
        as_json=as_json,
        everything=recipes,
    )
    echo(text)
    return code


def _check(scale: str, *, workers: int | None, timeout: float, store: bool | None) -> None:
    """Refuse what cannot be meant, before torch is imported."""
    if scale not in SCALES:
        raise UsageError(f"unknown scale {scale!r}.{suggest(scale, SCALES)}")
    if store and scale == "smoke":
        raise UsageError("--store keeps evidence, and smoke is none; use --scale cpu, or drop --store")
    if workers is not None and workers < 1:
        raise UsageError(f"--workers must be ≥ 1, got {workers}; leave it out for one per core")
    if not (timeout >= 0 and timeout < float("inf")):
        raise UsageError(f"--timeout must be a number of seconds, 0 for no limit, got {timeout}")
