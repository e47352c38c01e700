"""`leakscope inspect`: may I train on this model?"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from leakscope.cli.file_budget import budget_option
from leakscope.cli.terminal import echo

if TYPE_CHECKING:
    from leakscope.audits.passive import PassiveRisk
    from leakscope.types import Batch

_SECONDS = "60s"


def inspect(
    weights: Path = typer.Argument(help="Weights as received: .safetensors, .pt, .pth or .npz."),
    arch: str = typer.Option(
        ..., "--arch", "--model", help="The agreed network: a reference network, or package.module:function."
    ),
    batch: str | None = typer.Option(
        None, help="Examples of your own: a data set, a folder of pictures, an .npz file, or package.module:function."
    ),
    agreed: str | None = typer.Option(
        None, help="The agreed network, where --arch builds what the server sent; as --arch."
    ),
    previous: Path | None = typer.Option(None, help="Weights of the last round."),
    hashes: list[str] | None = typer.Option(
        None, "--hash", help="Fingerprint that another client got of this model; may be given several times."
    ),
    pruned: float = typer.Option(0.0, help="Share of weights that the federation has agreed to set to zero."),
    input_shape: str | None = typer.Option(
        None, help="Shape of one input, where no --batch tells it (default 3,32,32)."
    ),
    classes: int | None = typer.Option(
        None, help="Classes of a reference network; give it to pin them (default: what the file has)."
    ),
    normalise: str | None = typer.Option(None, help="Constants of a reference network's first layer, e.g. cifar10."),
    size: int | None = typer.Option(None, help="Side to bring pictures to; needed where they differ."),
    bounds: str | None = typer.Option(
        None, help="Range of your own data, low,high; none where it has none (default 0,1)."
    ),
    examples: int = typer.Option(64, help="Examples to look at the model with."),
    update_size: int = typer.Option(1, help="Examples behind the update whose leakage is measured."),
    budget: str = typer.Option(
        _SECONDS, help="Time for the attacks of an honest-but-curious server, e.g. 90s, 5m; none to leave them out."
    ),
    fail_above: float | None = typer.Option(
        None, help="Gate in dB: exit with 1 when an honest server rebuilds an example above it."
    ),
    seed: int = typer.Option(0, help="Seed of the choice of examples and of the attacks."),
    out: Path = typer.Option(Path("runs/inspect"), help="Directory for the page and the numbers."),
    budget_mb: float | None = budget_option(),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    quiet: bool = typer.Option(False, help="No progress."),
) -> None:
    """Look at a received model before you train on it, and say what an honest server could take from your update.

    Exit code 0: nothing found; 1: a finding, or a leak above the gate; 3: not known; 4: a bad file. No finding is no
    proof: every output says what is not detected.

    Example: leakscope inspect model.safetensors --arch vgg16 --batch photos --size 224 --previous last.safetensors
    """
    # Only what needs no torch up to the marked line: a wrong option is answered at once.
    seconds = _parse_budget(budget)
    _check_names(weights, networks=[arch, *([] if agreed is None else [agreed])], batch=batch, previous=previous)
    _check_hashes(hashes or [])
    _check_numbers(examples=examples, update_size=update_size, fail_above=fail_above, pruned=pruned)
    _check_unused(batch, size=size, bounds=bounds, fail_above=fail_above, input_shape=input_shape)
    # From here on torch is imported.
    from leakscope import __version__
    from leakscope.audits.inputs import last_part
    from leakscope.audits.may_train import advise_training
    from leakscope.cli.inspection_result import describe_inspection, print_inspection, write_inspection
    from leakscope.cli.loading import name_options, parse_numbers
    from leakscope.inspection import examine
    from leakscope.models import load_network
    from leakscope.user_code import is_code

    with name_options("size"):
        own = None if batch is None else _load(batch, examples, size=size, bounds=bounds, seed=seed)
    shape = tuple(own.inputs.shape[1:]) if own else tuple(parse_numbers(input_shape or "3,32,32", "--input-shape"))
    if classes is None and not is_code(arch):
        classes = _count_classes(arch, weights, shape)
    build: dict[str, Any] = {"shape": shape, "classes": classes, "normalise": normalise, "allow_code": True}
    network = load_network(arch, weights=weights, **build)
    before = None if previous is None else load_network(arch, weights=previous, **build)
    # Weights that do not fit --arch were refused by now.
    reference = network if agreed is None else load_network(agreed, **(build | _own_code(agreed)))
    found = examine(network, reference=reference, batch=own, previous=before, pruned=pruned, hashes=hashes or ())
    risk = None
    if own is not None and seconds and not found.findings:
        risk = _measure_risk(network, own, update_size=update_size, seconds=seconds, seed=seed, quiet=quiet)
    advice = advise_training(found, risk, has_examples=own is not None, fail_above=fail_above)
    places = [str(place) for place in (weights, previous, batch, out) if place is not None]
    result = describe_inspection(
        found,
        risk,
        advice,
        title=f"{weights.name} as {arch}",
        leakscope=__version__,
        command="leakscope " + shlex.join(sys.argv[1:]),
        private_paths=tuple((place, last_part(place)) for place in places),
    )
    page = write_inspection(result, out)
    if as_json:
        echo(json.dumps(result, indent=1, allow_nan=False))
    else:
        print_inspection(result, page)
    raise typer.Exit(advice.exit_code)


def _own_code(name: str) -> dict[str, Any]:
    """A function of the user's own takes no options of reference networks."""
    from leakscope.user_code import is_code

    return {"classes": None, "normalise": None} if is_code(name) else {}


def _parse_budget(text: str) -> float:
    """Seconds; 0 for none."""
    from leakscope.audits.durations import parse_time_limit
    from leakscope.errors import UsageError

    try:
        return parse_time_limit(text)
    except UsageError as error:
        raise UsageError(f"--budget: {error}") from error


def _check_names(weights: Path, *, networks: list[str], batch: str | None, previous: Path | None) -> None:
    from leakscope import catalogue
    from leakscope.errors import BadInputError
    from leakscope.user_code import check_findable, is_code

    for name in networks:
        catalogue.check_network(name)
        if is_code(name):
            check_findable(name)
    if batch is not None:
        catalogue.check_data(batch)
        catalogue.check_data_exist(batch)
    for path in (weights, previous):
        if path is not None and not os.path.lexists(path):
            raise BadInputError(f"{str(path)!r}: no such file; check the path")


def _check_numbers(*, examples: int, update_size: int, fail_above: float | None, pruned: float) -> None:
    import math

    from leakscope.errors import UsageError

    for option, value in (("--examples", examples), ("--update-size", update_size)):
        if not 1 <= value <= 10_000:
            raise UsageError(f"{option} must be a number of examples from 1 to 10,000, got {value}")
    if update_size > examples:
        raise UsageError(f"--update-size {update_size} is more than the {examples} examples that are read (--examples)")
    if fail_above is not None and not math.isfinite(fail_above):
        raise UsageError(f"--fail-above must be a finite number of decibels, got {fail_above}")
    if not 0 <= pruned < 1:
        raise UsageError(f"--pruned must be a share from 0 to below 1, got {pruned}")


def _check_hashes(hashes: list[str]) -> None:
    import re

    from leakscope.errors import UsageError

    for one in hashes:
        if not re.fullmatch(r"\s*[0-9a-fA-F]{64}\s*", one):
            raise UsageError(f"--hash takes the 64 hexadecimal digits that inspect prints, got {one[:80]!r}")


def _check_unused(batch: str | None, **options: object) -> None:
    from leakscope.errors import UsageError

    shape = options.pop("input_shape")
    if batch is not None and shape is not None:
        raise UsageError("--input-shape has no effect beside --batch, which tells the shape; drop it")
    for option, value in options.items():
        if batch is None and value is not None:
            raise UsageError(f"--{option.replace('_', '-')} has no effect without examples; give --batch, or drop it")


def _load(name: str, count: int, *, size: int | None, bounds: str | None, seed: int) -> Batch:
    from leakscope.data import load
    from leakscope.data.load import open_set

    there = len(open_set(name, "all", size=None if size is None else (size, size), bounds=bounds, allow_code=True))
    return load(name, split="all", count=min(count, there), seed=seed, size=size, bounds=bounds, allow_code=True)


def _count_classes(arch: str, weights: Path, shape: tuple[int, ...]) -> int | None:
    """Outputs of a reference network whose weights these are: a client may hold examples of some classes only."""
    from leakscope.files import load_state
    from leakscope.models import load_network

    *_, last = load_network(arch, shape=shape, classes=2).state_dict()
    found = load_state(weights).get(last)
    return None if found is None or found.ndim == 0 or len(found) == 0 else len(found)


def _measure_risk(network: Any, own: Batch, *, update_size: int, seconds: float, seed: int, quiet: bool) -> PassiveRisk:
    from leakscope.audits.passive import measure_passive_risk
    from leakscope.audits.run import require_self_check
    from leakscope.progress import show_progress
    from leakscope.types import Batch

    shared = Batch(own.inputs[:update_size], own.targets[:update_size], own.bounds)
    with show_progress(quiet=quiet) as progress:
        progress.note(f"attacking one update of {update_size} as an honest server would, up to {seconds:g} s")
        require_self_check()
        return measure_passive_risk(network, shared, seconds=seconds, seed=seed)
