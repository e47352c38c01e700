"""`leakscope profile`: which layers of a network are safe to share."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from leakscope.cli.file_budget import budget_option
from leakscope.cli.targets import check_target
from leakscope.cli.terminal import echo
from leakscope.text import printable

if TYPE_CHECKING:
    from torch import nn

    from leakscope.attack import Attack
    from leakscope.audits.profile import LeakageProfile, View
    from leakscope.types import Batch


def profile(
    model: str = typer.Option(help="Reference network, or package.module:function that returns one."),
    data: str = typer.Option(
        "digits", help="Data set, folder of pictures, .npz file, or package.module:function for data of your own."
    ),
    index: str = typer.Option("0", help="Examples behind the update, comma-separated."),
    bounds: str | None = typer.Option(
        None, help="Range of your own data, low,high; none where it has none (default 0,1)."
    ),
    one_hot: str | None = typer.Option(
        None, help="Columns of a table that are one-hot, first-last from 0, e.g. 2-5,6-8; beside those its file names."
    ),
    size: int | None = typer.Option(None, help="Side to bring pictures to; needed where they differ."),
    weights: Path | None = typer.Option(None, help="Weights of the model: .safetensors, .pt, .pth or .npz."),
    name: str = typer.Option("inverting-gradients:steps=100", "--attack", help="Attack with options."),
    scenario: str = typer.Option("B", help="What the server knows: A (everything) to E (nothing)."),
    views: str = typer.Option("alone,without,up to", help="Selections of layers to attack, comma-separated."),
    classes: int | None = typer.Option(None, help="Classes of a reference network (default: those of the data)."),
    normalise: str | None = typer.Option(None, help="Constants of a reference network's first layer, e.g. cifar10."),
    model_seed: int | None = typer.Option(
        None, help="Seed of a reference network's weights (default 0), where no weights are given."
    ),
    seed: int = typer.Option(0, help="Seed of the attack."),
    out: Path | None = typer.Option(None, help="Also write the numbers to this JSON file."),
    budget_mb: float | None = budget_option(),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Attack an update layer by layer and say which layers gave something away.

    Example: leakscope profile --model lenet-dlg --data cifar10 --attack inverting-gradients:steps=60
    """
    from leakscope.cli.loading import name_options, parse_numbers
    from leakscope.data import info, load
    from leakscope.files import write_atomic
    from leakscope.models import load_network
    from leakscope.registry import attack_from_spec
    from leakscope.user_code import is_code

    if out is not None:
        check_target(out, "--out")
    recipe = attack_from_spec(name)
    with name_options("size", "indices"):
        indices = parse_numbers(index, "--index")
        batch = load(data, split="test", indices=indices, size=size, bounds=bounds, one_hot=one_hot, allow_code=True)
    if classes is None and not is_code(model):
        classes = info(data, bounds=bounds, one_hot=one_hot, allow_code=True).num_classes
    network = load_network(
        model,
        weights=weights,
        shape=tuple(batch.inputs.shape[1:]),
        classes=classes,
        normalise=normalise,
        seed=model_seed,
        allow_code=True,
    )
    found = _attack_layers(
        recipe, network, batch, scenario=scenario, seed=seed, views=[view.strip() for view in views.split(",")]
    )
    result = {**asdict(found), "verdict": found.verdict()}
    text = json.dumps(result, indent=1, default=str)
    try:
        if out is not None:
            write_atomic(out, text.encode())
    finally:
        # A full disk must not cost the user what the attacks found.
        echo(text if as_json else "\n".join(_table(found)))


def _attack_layers(
    recipe: Attack, network: nn.Module, batch: Batch, *, scenario: str, seed: int, views: list[str]
) -> LeakageProfile:
    from leakscope.audits.profile import leakage_profile
    from leakscope.progress import count_steps, show_progress

    with (
        show_progress() as progress,
        # Every attack has its line: one takes seconds to hours.
        progress.count("attacks", every=0.0) as attacks,
        count_steps(progress, recipe) as watch,
    ):
        return leakage_profile(
            network,
            batch,
            recipe,
            scenario=scenario,
            seed=seed,
            views=views,
            say=lambda done, total, what: attacks.update(done, what, total=total),
            watch=watch,
        )


def _table(found: LeakageProfile) -> list[str]:
    columns = list(found.layers[0].views)
    head = ["layer", "numbers", "GradSim", *(f"{view} (dB)" for view in columns)]
    rows = [
        [printable(leak.name), str(leak.numbers), f"{leak.gradsim:.3f}", *(_cell(leak.views[view]) for view in columns)]
        for leak in found.layers
    ]
    widths = [max(len(row[place]) for row in [head, *rows]) for place in range(len(head))]
    lines = ["  ".join(_pad(row, widths)) for row in [head, *rows]]
    unit = "" if found.everything.psnr is None else " dB"
    summary = f"everything: {_cell(found.everything)}{unit}, blind guess: {found.baseline:.1f} dB"
    return [
        *lines,
        "",
        f"{summary}, scenario {found.scenario}",
        printable(found.verdict()),
        *map(printable, _reasons(found)),
    ]


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


def _pad(row: list[str], widths: list[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]


def _cell(view: View) -> Any:
    return str(view.status) if view.psnr is None else f"{view.psnr:.1f}"
