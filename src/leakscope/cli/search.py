"""`leakscope search`: which policies of transformations hide pictures best and cost little accuracy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from leakscope.cli.failures import use_run_folder
from leakscope.cli.file_budget import budget_option
from leakscope.cli.terminal import echo
from leakscope.text import printable

if TYPE_CHECKING:
    from leakscope.defences.transforms.score_bench import ScoreBench
    from leakscope.defences.transforms.search import SearchSettings
    from leakscope.defences.transforms.search_setup import SearchSubject
    from leakscope.progress import Progress

_RESULT = "search.json"
_TEXT = "search.txt"


def search(
    data: str = typer.Option(
        help="Data set, folder of pictures, .npz file, or package.module:function for data of your own."
    ),
    model: str = typer.Option("resnet20-4", help="Reference network, or package.module:function that returns one."),
    out: Path = typer.Option(Path("runs/search"), help="Directory of the search; the same command continues it."),
    candidates: int = typer.Option(1_500, help="Policies to draw or propose; equal ones are scored once."),
    mode: str = typer.Option("race", help="race, exhaustive, or tpe and nsga2 (Optuna proposes)."),
    policy: list[str] | None = typer.Option(
        None, help="A policy that takes part besides, e.g. 3-1-7; may be given several times."
    ),
    images: int = typer.Option(100, help="Pictures of the full privacy score."),
    first: int | None = typer.Option(
        None, help="Pictures that all candidates are shown (default 3; a quarter of all in tpe and nsga2)."
    ),
    top: int = typer.Option(10, help="Policies wanted."),
    threshold: float | None = typer.Option(
        None, help="Accuracy score that a policy must reach (default -85; 1.34 at most for --scores paper)."
    ),
    scores: str = typer.Option("released", help="Formulas of both scores: released (published code) or paper."),
    epochs: int = typer.Option(2, help="Passes of the network's training over a tenth of the data; 0: untrained."),
    weights: Path | None = typer.Option(None, help="Weights of a trained network instead."),
    size: int | None = typer.Option(None, help="Side to bring pictures to; needed where they differ."),
    normalise: str | None = typer.Option(None, help="Constants of a reference network's first layer, e.g. cifar10."),
    correlate: int = typer.Option(
        0, help="Also attack so many policies, and say whether the privacy score predicts PSNR; 0: do not."
    ),
    noise: bool = typer.Option(True, help="Measure how much scores change with other random numbers."),
    workers: int = typer.Option(2, help="Processes of one thread."),
    seed: int = typer.Option(0, help="Seed of candidates, noise, signs and training."),
    budget_mb: float | None = budget_option(),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    quiet: bool = typer.Option(False, help="No progress."),
) -> None:
    """Search for policies of the defence `transforms`; killed, the same command continues.

    Example: leakscope search --data fashion-mnist --model resnet20-4 --candidates 200 --out runs/search
    """
    from leakscope.defences.transforms.score_pool import check_workers
    from leakscope.defences.transforms.search import SearchSettings
    from leakscope.defences.transforms.search_setup import SearchSubject
    from leakscope.errors import UsageError
    from leakscope.files import private_folder, write_atomic

    if correlate < 0 or 0 < correlate < 4:
        raise UsageError(f"--correlate must be 0, or at least 4 policies for an interval, got {correlate}")
    check_workers(workers)
    settings = SearchSettings(
        candidates=candidates,
        mode=mode,  # type: ignore[arg-type]
        top=top,
        threshold=threshold,
        first=first,
        seed=seed,
        also=tuple(policy or ()),
    )
    subject = SearchSubject(
        data=data,
        model=model,
        images=images,
        size=size,
        normalise=normalise,
        weights=weights,
        epochs=epochs,
        variant=scores,  # type: ignore[arg-type]
        seed=seed,
    )
    use_run_folder(out)
    private_folder(out)
    found = _run(subject, settings, out, noise=noise, correlate=correlate, workers=workers, quiet=quiet)
    text = json.dumps(found, indent=1)
    table = "\n".join(show(found))
    write_atomic(out / _RESULT, text.encode())
    write_atomic(out / _TEXT, (table + "\n").encode())
    echo(text if as_json else f"{table}\n\nresult: {printable(out / _RESULT)}")


def _run(
    subject: SearchSubject,
    settings: SearchSettings,
    out: Path,
    *,
    noise: bool,
    correlate: int,
    workers: int,
    quiet: bool,
) -> dict[str, Any]:
    from leakscope.audits.policy_psnr import correlate as measure_correlation
    from leakscope.cli.loading import name_options
    from leakscope.defences.transforms.score_book import ScoreBook
    from leakscope.defences.transforms.score_pool import open_pool
    from leakscope.defences.transforms.score_store import open_store
    from leakscope.defences.transforms.search import search as find
    from leakscope.defences.transforms.search_report import describe, noise_floor
    from leakscope.progress import show_progress

    with show_progress(quiet=quiet) as progress, name_options("size", "indices"):
        bench = _prepare(subject, out, progress)
        with (
            open_store(out, bench.identity()) as store,
            open_pool(bench, workers=workers) as pool,
            progress.count("scoring policies") as counter,
        ):
            book = ScoreBook(bench, pool, store, counter)
            result = find(book, settings)
            floor = noise_floor(book) if noise else None
            measured = measure_correlation(book, result.candidates, count=correlate) if correlate else None
    found = describe(result, settings, bench, noise=floor, correlation=measured)
    return {"data": subject.data, "model": subject.model, "images": subject.images, **found}


def _prepare(subject: SearchSubject, out: Path, progress: Progress) -> ScoreBench:
    from leakscope.defences.transforms.search_setup import prepare

    with progress.count("training the network of the search") as counter:
        return prepare(
            subject,
            out,
            watch=lambda done, total, loss: counter.update(done, f"training, loss {loss:.3f}", total=total),
        )


def _show_rounds(rounds: list[dict[str, int]]) -> str:
    told = ", ".join(f"{rung['candidates']} on {rung['pictures']} pictures" for rung in rounds)
    every = rounds[0]["every"]
    return told if every == 1 else f"{told}; by every {every}th point of a line, in the last round by all"


def show(found: dict[str, Any]) -> list[str]:
    """The result for people."""
    drawn = found["candidates"]
    lines = [
        f"{drawn['different']} different policies of {drawn['drawn']}, {found['mode']}, {found['scores']} scores; "
        f"{len(found['rejected'])} rejected by the accuracy score (threshold {found['threshold']:.4g}, "
        f"pictures left alone {found['unchanged']:.4g})",
        "rounds: " + _show_rounds(found["rounds"]),
        "",
        f"{'policy':<12}{'S_pri':>8}{'±':>8}{'S_acc':>10}  does",
    ]
    lines += [
        f"{one['policy']:<12}{one['privacy']:>8.4f}{one['error']:>8.4f}{one['accuracy']:>10.2f}  {one['does']}"
        for one in found["best"]
    ]
    if found["best"]:
        lines += ["", f"hybrid of the best: {'+'.join(one['policy'] for one in found['best'][:3])}"]
    if found["front"]:
        lines.append(f"not beaten in both scores: {', '.join(one['policy'] for one in found['front'])}")
    if noise := found["noise"]:
        lines.append(
            f"noise floor: S_pri ±{noise['privacy']:.4f}, S_acc ±{noise['accuracy']:.2f} "
            f"(equal policies scored apart, {noise['pictures']} pictures)"
        )
    if diverse := found["diversity"]:
        lines.append(
            f"diversity of the best: {diverse['functions']} functions, two policies share "
            f"{100 * diverse['overlap']:.0f} % of theirs"
        )
    if measured := found["correlation"]:
        lines.append(
            f"{measured['what']}: r = {measured['r']:.2f} ({measured['low']:.2f} to {measured['high']:.2f}), "
            f"{measured['policies']} policies, {measured['pictures']} pictures"
        )
    return [*lines, *found["notes"]]
