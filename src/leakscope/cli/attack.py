"""`leakscope attack`: what comes back out of one update file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from leakscope.attack import Attack
    from leakscope.types import Observation, Reconstruction


def attack(
    update: Path = typer.Argument(help="Update file: .safetensors, .npz or .pt; or the weights after training."),
    model: str = typer.Option(help="Reference network, or package.module:function that returns one."),
    weights: Path | None = typer.Option(None, help="Weights the client started from: .safetensors, .pt, .pth or .npz."),
    before: Path | None = typer.Option(None, help="UPDATE holds weights after training; these are the ones before."),
    name: str = typer.Option("inverting-gradients", "--attack", help="Attack with options."),
    scenario: str = typer.Option("E", help="What the server knows: A (everything) to E (nothing)."),
    input_shape: str = typer.Option("3,32,32", help="Shape of one input."),
    classes: int | None = typer.Option(None, help="Classes of a reference network (default 10)."),
    labels: str | None = typer.Option(None, help="Labels, comma-separated, where the scenario grants them."),
    kind: str | None = typer.Option(None, help="'gradient' or 'delta', where the file does not say."),
    lr: float | None = typer.Option(None, help="Client's learning rate, for a delta."),
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
    partial: bool = typer.Option(False, help="Accept an update that covers only some layers."),
    seed: int = typer.Option(0, help="Seed of the attack."),
    out: Path = typer.Option(
        Path("runs/attack"), help="Directory for the images and numbers; a result in it is replaced."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Rebuild the private inputs behind an update, from files alone.

    Example: leakscope attack gradient.npz --model mynet:build --weights net.safetensors
    --input-shape 3,32,32 --out runs/mine
    """
    from leakscope.cli.loading import (
        check_granted,
        load_any_update,
        load_labels,
        local_training,
        parse_numbers,
        refuse_weights,
        refuse_zero,
    )
    from leakscope.data import parse_bounds
    from leakscope.errors import UsageError
    from leakscope.files import check_update
    from leakscope.models import load_network
    from leakscope.observation.observe import observe
    from leakscope.registry import attack_from_spec
    from leakscope.types import Knowledge

    shape = tuple(parse_numbers(input_shape, "--input-shape"))
    limits = (0.0, 1.0) if bounds is None else parse_bounds(bounds)
    recipe = attack_from_spec(name)
    check_granted(
        scenario,
        labels=(labels, Knowledge.LABELS),
        lr=(lr, Knowledge.LEARNING_RATE),
        num_examples=(num_examples, Knowledge.BATCH_SIZE),
    )
    local = local_training(lr, local_steps, local_batch)
    if weights is not None and before is not None:
        raise UsageError("--before holds the weights the client started from, so --weights has no effect; drop it")
    network = load_network(
        model,
        weights=weights or before,
        shape=shape,
        classes=classes,
        normalise=normalise,
        seed=model_seed,
        allow_code=True,
    )
    shared = load_any_update(update, before=before, kind=kind, local=local, num_examples=num_examples)
    shared = check_update(shared, network, partial=partial)
    refuse_weights(shared, network, update)
    refuse_zero(shared, update)
    targets = None if labels is None else load_labels(labels, network, update=shared, shape=shape)
    seen = observe(network, shared, scenario=scenario, input_shape=shape, targets=targets)
    result = _run(recipe, replace(seen, bounds=limits), seed=seed, out=out)
    if as_json:
        typer.echo(json.dumps(result, indent=1))
    else:
        _print(result, out)
    raise typer.Exit(0 if result["status"] == "ok" else 3)


def _run(recipe: Attack, seen: Observation, *, seed: int, out: Path) -> dict[str, Any]:
    """Attack, and write what was found; the folder is checked before and changed only when all is written."""
    from leakscope.cli.result_folder import RESULT, result_folder, save_inputs
    from leakscope.files import write_atomic
    from leakscope.progress import count_steps, show_progress

    with result_folder(out) as folder:
        with show_progress() as progress, count_steps(progress, recipe) as watch:
            found = recipe.reconstruct(seen, seed, watch=watch)
        images, inputs = save_inputs(folder, found.inputs, is_unit_range=seen.bounds == (0.0, 1.0))
        result = _result(found, recipe.name, seen.scenario, images=images, inputs=inputs)
        write_atomic(folder / RESULT, json.dumps(result, indent=1, allow_nan=False).encode())
    return result


def _result(
    found: Reconstruction, name: str, scenario: str, *, images: list[str], inputs: str | None
) -> dict[str, Any]:
    from leakscope.audits.execute import number

    return {
        "attack": name,
        "scenario": scenario,
        "status": str(found.status),
        "loss": number(found.loss),
        "labels": None if found.targets is None else found.targets.tolist(),
        "evaluations": found.evaluations,
        "images": images,
        "inputs": inputs,
        "notes": list(found.notes),
    }


def _print(result: dict[str, Any], out: Path) -> None:
    typer.echo(f"{result['attack']}: {result['status']}, matching distance {result['loss']}, labels {result['labels']}")
    for note in result["notes"]:
        typer.echo(f"  {note}")
    for image in result["images"]:
        typer.echo(f"image: {out / image}")
    if result["inputs"] is not None:
        typer.echo(f"inputs as numbers: {out / result['inputs']}")
