"""`leakscope attack`: what comes back out of update files."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import typer

from leakscope.cli.file_budget import budget_option
from leakscope.cli.terminal import echo


def attack(
    update: Path = typer.Argument(
        help="Update file: .safetensors, .npz or .pt; or the weights after training; or a folder of such files."
    ),
    model: str = typer.Option(help="Reference network, or package.module:function that returns one."),
    weights: Path | None = typer.Option(None, help="Weights the client started from: .safetensors, .pt, .pth or .npz."),
    before: Path | None = typer.Option(None, help="UPDATE holds weights after training; these are the ones before."),
    name: str = typer.Option("inverting-gradients", "--attack", help="Attack with options."),
    scenario: str = typer.Option("E", help="What the server knows: A (everything) to E (nothing)."),
    input_shape: str = typer.Option("3,32,32", help="Shape of one input."),
    classes: int | None = typer.Option(None, help="Classes of a reference network (default 10)."),
    labels: str | None = typer.Option(None, help="Labels, comma-separated, where the scenario grants them."),
    kind: str | None = typer.Option(None, help="'gradient' or 'delta', where the file does not say."),
    local: str | None = typer.Option(
        None, help="How the client trained, for a delta, e.g. lr=0.01,epochs=2,batch=8,momentum=0.9,optimiser=sgd."
    ),
    lr: float | None = typer.Option(None, help="Learning rate of a client with plain SGD, for a delta."),
    local_steps: int | None = typer.Option(None, help="Client's local steps, for a delta (default 1)."),
    local_batch: int | None = typer.Option(None, help="Client's local batch size, for a delta (default 1)."),
    num_examples: int | None = typer.Option(None, help="Examples behind the update, where known."),
    normalise: str | None = typer.Option(None, help="Constants of a reference network's first layer, e.g. cifar10."),
    model_seed: int | None = typer.Option(
        None, help="Seed of a reference network's weights (default 0), where no weights are given."
    ),
    bounds: str | None = typer.Option(
        None, help="Range of the inputs, low,high; none where they have none (default 0,1)."
    ),
    truth: str | None = typer.Option(
        None, help="True examples, to score and grade the result: an .npz file, a folder, or package.module:function."
    ),
    fail_above: float | None = typer.Option(
        None, help="Gate in dB: exit with 1 when an example comes back above it; needs --truth."
    ),
    show_images: bool = typer.Option(False, help="Put the true and the rebuilt images into the report."),
    partial: bool = typer.Option(False, help="Accept an update that covers only some layers."),
    seed: int = typer.Option(0, help="Seed of the attack."),
    out: Path = typer.Option(
        Path("runs/attack"), help="Directory for images, numbers and report; a result in it is replaced."
    ),
    budget_mb: float | None = budget_option(),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Rebuild the private inputs behind one update or a folder of them, from files alone.

    With --truth every result is scored and graded, and the exit code is 1 when one is above the gate. 3: a result is
    not evidence; 4: a file could not be read, the others are attacked all the same.

    Example: leakscope attack gradient.npz --model mynet:build --weights net.safetensors
    --input-shape 3,32,32 --out runs/mine
    """
    from leakscope.cli.attack_run import AttackRun
    from leakscope.cli.loading import check_granted, local_training, parse_numbers
    from leakscope.cli.update_folder import Declaration, TrueExamples, list_updates
    from leakscope.data import parse_bounds
    from leakscope.models import load_network
    from leakscope.registry import attack_from_spec
    from leakscope.types import Knowledge

    shape = tuple(parse_numbers(input_shape, "--input-shape"))
    limits = (0.0, 1.0) if bounds is None else parse_bounds(bounds)
    recipe = attack_from_spec(name)
    check_granted(
        scenario,
        labels=(labels, Knowledge.LABELS),
        local=(local, Knowledge.LEARNING_RATE),
        lr=(lr, Knowledge.LEARNING_RATE),
        num_examples=(num_examples, Knowledge.BATCH_SIZE),
    )
    training = local_training(local, lr=lr, steps=local_steps, batch=local_batch)
    _check_options(weights=weights, before=before, labels=labels, update=update, truth=truth, fail_above=fail_above)
    network = load_network(
        model,
        weights=weights or before,
        shape=shape,
        classes=classes,
        normalise=normalise,
        seed=model_seed,
        allow_code=True,
    )
    paths = list_updates(update, besides=(weights, before))
    declared = Declaration(
        network=network,
        shape=shape,
        scenario=scenario,
        bounds=limits,
        before=before,
        kind=kind,
        local=training,
        redeclared=local is not None,
        num_examples=num_examples,
        partial=partial,
        labels=labels,
    )
    originals = None if truth is None else TrueExamples(truth, paths, shape=shape, bounds=bounds)
    run = AttackRun(
        recipe,
        declared,
        originals,
        model=model,
        seed=seed,
        is_folder=os.path.isdir(update),
        command="leakscope " + shlex.join(sys.argv[1:]),
    )
    result = run.write(paths, out, fail_above=fail_above, show_images=show_images)
    if as_json:
        echo(json.dumps(result, indent=1))
    else:
        _print(result, out)
    raise typer.Exit(result["exit_code"])


def _check_options(
    *,
    weights: Path | None,
    before: Path | None,
    labels: str | None,
    update: Path,
    truth: str | None,
    fail_above: float | None,
) -> None:
    from leakscope.errors import UsageError

    if weights is not None and before is not None:
        raise UsageError("--before holds the weights the client started from, so --weights has no effect; drop it")
    if labels is not None and os.path.isdir(update):
        raise UsageError(
            f"--labels are those of one update, and {update} is a folder; give --truth, whose labels are used where "
            "the scenario grants them"
        )
    if fail_above is not None and truth is None:
        raise UsageError("--fail-above has no effect without the true examples; give --truth, too, or drop it")
    if fail_above is not None and not math.isfinite(fail_above):
        raise UsageError(f"--fail-above must be a finite number of decibels, got {fail_above}")


def _print(result: dict[str, Any], out: Path) -> None:
    for entry in result.get("updates", [result]):
        _print_update(entry, out, is_one_of_many="updates" in result)
    if result["line"]:
        echo(result["line"])
    echo(f"report: {out / 'report.html'}")


def _print_update(entry: dict[str, Any], out: Path, *, is_one_of_many: bool) -> None:
    name = entry["file"] if is_one_of_many else entry["attack"]
    if "error" in entry:
        echo(f"{name}: {entry['status']}: {entry['error']}")
        return
    echo(f"{name}: {entry['status']}, matching distance {entry['loss']}, labels {entry['labels']}")
    told = _fit_lines(entry["fit"])
    # An attack that is not evidence repeats its diagnosis among the notes.
    notes = [note for note in entry["notes"] if f"diagnosis: {note}" not in told]
    for line in (*told, *_score_lines(entry["worst"]), *notes):
        echo(f"  {line}")
    for image in entry["images"]:
        echo(f"image: {out / image}")
    if entry["inputs"] is not None:
        echo(f"inputs as numbers: {out / entry['inputs']}")


def _fit_lines(fit: dict[str, Any] | None) -> list[str]:
    if fit is None or fit["explained"] is None:
        return []
    parts = [f"explains {100 * fit['explained']:.0f} % of the update"]
    parts += [] if fit["unrelated"] is None else [f"unrelated inputs {100 * fit['unrelated']:.0f} %"]
    parts += [] if fit["truth"] is None else [f"the true examples {100 * fit['truth']:.0f} %"]
    return ["; ".join(parts), *([f"diagnosis: {fit['diagnosis']}"] if fit["diagnosis"] else [])]


def _score_lines(worst: dict[str, Any] | None) -> list[str]:
    if worst is None:
        return []
    psnr = "a perfect copy" if worst["psnr"] is None else f"{worst['psnr']:.1f} dB"
    guess = "" if worst["baseline_psnr"] is None else f", a guess {worst['baseline_psnr']:.1f} dB"
    return [f"worst example: {psnr}, grade {worst['grade']}{guess}"]
