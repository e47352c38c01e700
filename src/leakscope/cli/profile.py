"""`leakscope profile`: which layers of a network are safe to share."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from leakscope.profile import LeakageProfile, View


def profile(
    model: str = typer.Option(help="Reference network, or package.module:function that returns one."),
    data: str = typer.Option("digits", help="Data set, or a folder of images."),
    index: str = typer.Option("0", help="Examples behind the update, comma-separated."),
    weights: Path | None = typer.Option(None, help="Weights of the model (state dict)."),
    name: str = typer.Option("inverting-gradients:steps=100", "--attack", help="Attack with options."),
    scenario: str = typer.Option("B", help="What the server knows: A (everything) to E (nothing)."),
    views: str = typer.Option("alone,without,up to", help="Selections of layers to attack, comma-separated."),
    classes: int = typer.Option(10, help="Classes of a reference network."),
    normalise: str | None = typer.Option(None, help="Constants of a reference network's first layer, e.g. cifar10."),
    model_seed: int = typer.Option(0, help="Seed of a reference network's weights where --weights is not given."),
    seed: int = typer.Option(0, help="Seed of the attack."),
    out: Path | None = typer.Option(None, help="Also write the numbers to this JSON file."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Attack an update layer by layer and say which layers gave something away.

    Example: leakscope profile --model lenet-dlg --data cifar10 --attack inverting-gradients:steps=60
    """
    from leakscope.cli.loading import load_model, parse_numbers
    from leakscope.cli.progress import Shown
    from leakscope.data import load
    from leakscope.files import write_atomic
    from leakscope.profile import leakage_profile
    from leakscope.registry import attack_from_spec

    if out is not None:
        _check_target(out)
    recipe = attack_from_spec(name)
    batch = load(data, split="test", indices=parse_numbers(index, "--index"))
    network = load_model(
        model, weights=weights, shape=tuple(batch.inputs.shape[1:]), classes=classes, normalise=normalise,
        seed=model_seed,
    )  # fmt: skip
    found = leakage_profile(
        network, batch, Shown(recipe), scenario=scenario, seed=seed,
        views=[view.strip() for view in views.split(",")], say=_Counter(),
    )  # fmt: skip
    result = {**asdict(found), "verdict": found.verdict()}
    text = json.dumps(result, indent=1, default=str)
    try:
        if out is not None:
            write_atomic(out, text.encode())
    finally:
        # A full disk must not cost the user what the attacks found.
        typer.echo(text if as_json else "\n".join(_table(found)))


def _check_target(out: Path) -> None:
    """Refuse a file that could not be written before hours of attacks, and create nothing yet."""
    from leakscope.errors import StorageError

    try:
        if out.is_symlink() or (out.exists() and not out.is_file()):
            kind = "a symbolic link" if out.is_symlink() else "a folder" if out.is_dir() else "something else"
            raise StorageError(f"--out {str(out)!r}: expected a plain file or none, got {kind}; choose another name")
        nearest = next(folder for folder in out.absolute().parents if folder.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise StorageError(f"--out {str(out)!r}: cannot write into {str(nearest)!r}; choose another place")
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"--out {str(out)!r}: cannot be written ({error.strerror}); choose another name") from error


class _Counter:
    """Says which attack is done, and about how long the others will take."""

    def __init__(self) -> None:
        self.began = time.monotonic()

    def __call__(self, done: int, total: int, what: str) -> None:
        left = (time.monotonic() - self.began) / done * (total - done)
        print(f"[{done}/{total}] {what}" + (f", about {left:.0f} s left" if done < total else ""), file=sys.stderr)


def _table(found: LeakageProfile) -> list[str]:
    columns = list(found.layers[0].views)
    head = ["layer", "numbers", "GradSim", *(f"{view} (dB)" for view in columns)]
    rows = [
        [leak.name, str(leak.numbers), f"{leak.gradsim:.3f}", *(_cell(leak.views[view]) for view in columns)]
        for leak in found.layers
    ]
    widths = [max(len(row[place]) for row in [head, *rows]) for place in range(len(head))]
    lines = ["  ".join(_padded(row, widths)) for row in [head, *rows]]
    unit = "" if found.everything.psnr is None else " dB"
    summary = f"everything: {_cell(found.everything)}{unit}, blind guess: {found.baseline:.1f} dB"
    return [*lines, "", f"{summary}, scenario {found.scenario}", found.verdict(), *_reasons(found)]


def _reasons(found: LeakageProfile) -> list[str]:
    """Why attacks gave no evidence: each reason once, after the selections it holds for."""
    seen = [("everything", found.everything)]
    seen += [(f"{view} {leak.name}", value) for leak in found.layers for view, value in leak.views.items()]
    groups: dict[str, list[str]] = {}
    for selection, value in seen:
        if value.psnr is None:
            reason = f"{value.status}: {value.reason}" if value.reason else str(value.status)
            groups.setdefault(reason, []).append(selection)
    return [f"no evidence ({', '.join(selections)}): {reason}" for reason, selections in groups.items()]


def _padded(row: list[str], widths: list[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]


def _cell(view: View) -> Any:
    return str(view.status) if view.psnr is None else f"{view.psnr:.1f}"
