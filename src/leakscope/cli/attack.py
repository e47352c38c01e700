"""`leakscope attack`: what comes back out of update files."""

from __future__ import annotations

import json
import math
import os
import re
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
        None, help="Range of the inputs, low,high, or 18,90;0,1 by column; none where they have none (default 0,1)."
    ),
    one_hot: str | None = typer.Option(
        None, help="Columns of a table that are one-hot, first-last from 0, e.g. 2-5,6-8."
    ),
    truth: str | None = typer.Option(
        None, help="True examples, to score and grade the result: an .npz file, a folder, or package.module:function."
    ),
    public: str | None = typer.Option(
        None,
        help="Pictures like the true ones that are nobody's secret, for the baseline 'nearest public picture' "
        "(default: the truths of the other updates); as --truth.",
    ),
    prior_alone: bool = typer.Option(
        True,
        help="With --truth: also measure what the attack reaches on another update. In a folder of updates of one form "
        "that costs nothing, elsewhere one attack more per update.",
    ),
    fail_above: float | None = typer.Option(
        None, help="Gate in dB: exit with 1 when an example comes back above it; needs --truth."
    ),
    show_images: bool = typer.Option(
        False, help="Put the true and the rebuilt images into the report; of texts, print the tokens."
    ),
    partial: bool = typer.Option(False, help="Accept an update that covers only some layers."),
    seed: int = typer.Option(0, help="Seed of the attack."),
    timeout: str | None = typer.Option(
        None, help="Longest time of one update, e.g. 90s, 2h; none for no limit (default 12h)."
    ),
    out: Path = typer.Option(
        Path("runs/attack"), help="Directory for images, numbers and report; a result in it is replaced."
    ),
    budget_mb: float | None = budget_option(),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Rebuild the private inputs behind one update or a folder of them, from files alone.

    With --truth every result is scored beside what is reached without the update, and graded; the exit code is 1 when
    one is above the gate. 3: a result is
    not evidence; 4: a file could not be read, the others are attacked all the same.

    Example: leakscope attack gradient.npz --model mynet:build --weights net.safetensors
    --input-shape 3,32,32 --out runs/mine
    """
    # Only what needs no torch up to the marked line: a wrong option is answered at once.
    seconds = _parse_timeout(timeout)
    _check_names(update, model=model, attack=name, bounds=bounds, normalise=normalise, weights=weights or before)
    # From here on torch is imported.
    from leakscope.audits.inputs import last_part
    from leakscope.cli.attack_run import AttackRun, Scoring
    from leakscope.cli.loading import check_granted, local_training, parse_numbers
    from leakscope.cli.update_folder import Declaration, TrueExamples, list_updates, load_examples
    from leakscope.data.ranges import DeclaredRange
    from leakscope.errors import UsageError
    from leakscope.models import load_network
    from leakscope.networks import find_token_layer
    from leakscope.registry import attack_from_spec
    from leakscope.types import Knowledge

    shape = tuple(parse_numbers(input_shape, "--input-shape"))
    said = DeclaredRange(bounds, one_hot)
    limits = said.of_unseen(shape)
    recipe = attack_from_spec(name)
    check_granted(
        scenario,
        labels=(labels, Knowledge.LABELS),
        local=(local, Knowledge.LEARNING_RATE),
        lr=(lr, Knowledge.LEARNING_RATE),
        num_examples=(num_examples, Knowledge.BATCH_SIZE),
    )
    training = local_training(local, lr=lr, steps=local_steps, batch=local_batch)
    _check_options(weights=weights, before=before, labels=labels, update=update)
    _check_scoring(truth, fail_above=fail_above, public=public, prior_alone=prior_alone)
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
    tokens = find_token_layer(network, shape)
    if tokens is not None and (said.is_given or fail_above is not None):
        option = "--fail-above" if not said.is_given else "--bounds" if bounds is not None else "--one-hot"
        raise UsageError(
            f"the network takes tokens, which have no range and are not scored in decibels, so {option} has no effect; "
            "drop it"
        )
    vocabulary = None if tokens is None else tokens.layer.num_embeddings
    scoring = None
    if truth is not None:
        originals = TrueExamples(truth, paths, shape=shape, said=said, vocabulary=vocabulary)
        others = None if public is None else load_examples(public, shape=shape, said=said)
        scoring = Scoring(originals, others, prior_alone)
    places = [str(place) for place in (update, weights, before, truth, public, out) if place is not None]
    places += [part for part in re.split("[=,]", name) if os.path.isabs(part)]
    run = AttackRun(
        recipe,
        declared,
        scoring,
        model=model,
        seed=seed,
        is_folder=os.path.isdir(update),
        command="leakscope " + shlex.join(sys.argv[1:]),
        private_paths=tuple((place, last_part(place)) for place in places),
        show_private=show_images,
        seconds=seconds,
    )
    result = run.write(paths, out, fail_above=fail_above)
    if as_json:
        echo(json.dumps(result, indent=1))
    else:
        _print(result, out)
    raise typer.Exit(result["exit_code"])


def _parse_timeout(text: str | None) -> float:
    from leakscope.audits.durations import TIMEOUT_SECONDS, parse_time_limit
    from leakscope.errors import UsageError

    try:
        return TIMEOUT_SECONDS if text is None else parse_time_limit(text)
    except UsageError as error:
        raise UsageError(f"--timeout: {error}") from error


def _check_names(
    update: Path, *, model: str, attack: str, bounds: str | None, normalise: str | None, weights: Path | None
) -> None:
    """Refuse what can be told without torch to be wrong: names, numbers, code and files that are not there."""
    from leakscope import catalogue
    from leakscope.errors import BadInputError
    from leakscope.input_values import find_constants, read_ranges
    from leakscope.user_code import check_findable, is_code

    catalogue.check_network(model)
    catalogue.check_spec("attack", attack)
    for code in (model, attack):
        if is_code(catalogue.parse_spec(code)[0]):
            check_findable(code)
    if bounds is not None:
        read_ranges(bounds)
    if normalise is not None:
        find_constants(normalise)
    for path in (weights, update):
        if path is not None and not os.path.lexists(path):
            raise BadInputError(f"{str(path)!r}: no such file; check the path")


def _check_options(
    *,
    weights: Path | None,
    before: Path | None,
    labels: str | None,
    update: Path,
) -> None:
    from leakscope.errors import UsageError

    if weights is not None and before is not None:
        raise UsageError("--before holds the weights the client started from, so --weights has no effect; drop it")
    if labels is not None and os.path.isdir(update):
        raise UsageError(
            f"--labels are those of one update, and {update} is a folder; give --truth, whose labels are used where "
            "the scenario grants them"
        )


def _check_scoring(truth: str | None, *, fail_above: float | None, public: str | None, prior_alone: bool) -> None:
    from leakscope.errors import UsageError

    given = {
        "--fail-above": fail_above is not None,
        "--public": public is not None,
        "--no-prior-alone": not prior_alone,
    }
    for option, is_given in given.items():
        if is_given and truth is None:
            raise UsageError(f"{option} has no effect without the true examples; give --truth, too, or drop it")
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
    for line in (*told, *_score_lines(entry["worst"]), *_token_lines(entry.get("tokens")), *notes):
        echo(f"  {line}")
    for image in entry["images"]:
        echo(f"image: {out / image}")
    if entry["inputs"] is not None:
        what = "tokens" if "tokens" in entry else "inputs"
        echo(f"{what} as numbers: {out / entry['inputs']}")


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
    lines = [f"worst example: {psnr}, grade {worst['grade']}"]
    if worst["baseline_psnr"] is None:
        return lines
    nulls = ", ".join(f"{name} {value:.1f} dB" for name, value in worst["baselines"].items())
    gain = "" if worst["gain"] is None else f"gain {worst['gain']:.1f} dB over {worst['best_null']}; "
    return [*lines, f"{gain}without the update: {nulls}"]


def _token_lines(tokens: dict[str, Any] | None) -> list[str]:
    """How many tokens were found, never which, unless private data may be shown."""
    if tokens is None:
        return []
    lines = [f"{tokens['found']} different tokens found, out of {tokens['vocabulary']}"]
    lines += [tokens["words"]] if tokens["words"] else []
    return [*lines, *([f"tokens: {', '.join(map(str, tokens['ids']))}"] if "ids" in tokens else [])]
