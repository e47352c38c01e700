"""Updates, labels and ranges from what a user names on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from leakscope.cli.local_options import read_local
from leakscope.errors import BadInputError, MissingDataError, UnsuitableError, UsageError
from leakscope.files import load_update
from leakscope.files.updates import read_kind
from leakscope.networks import freeze, settle
from leakscope.observation.checks import check_labels, check_not_zero
from leakscope.observation.scenario import SCENARIOS, get_scenario
from leakscope.tensors import dot, global_norm
from leakscope.types import Knowledge, LocalTraining, SharedUpdate

# Gradients and deltas are nearly orthogonal to the weights; a trained copy of them is not.
_SAME_WEIGHTS = 0.9


def check_granted(scenario: str, **given: tuple[object, Knowledge]) -> None:
    """Refuse what the scenario would withhold: ignored in silence, it would look as if the attack had it."""
    rung = get_scenario(scenario)
    for option, (value, knowledge) in given.items():
        if value is not None and knowledge not in rung.grants:
            granting = [other.name for other in SCENARIOS.values() if knowledge in other.grants]
            raise UsageError(
                f"scenario {rung.name} withholds {knowledge.value}, so --{option.replace('_', '-')} has no use in it; "
                f"drop the option, or use --scenario {' or '.join(granting)}"
            )


def local_training(
    local: str | None, *, lr: float | None, steps: int | None, batch: int | None
) -> LocalTraining | None:
    """How the client trained, where the command line says so: --local says all of it, the others plain SGD."""
    if local is not None:
        if given := [option for option, value in _plain(lr, steps, batch) if value is not None]:
            raise UsageError(f"--local says how the client trained, and so does {given[0]}; put it into --local")
        return read_local(local)
    if lr is not None:
        return LocalTraining(lr, 1 if steps is None else steps, 1 if batch is None else batch)
    for option, value in _plain(lr, steps, batch):
        if value is not None:
            raise UsageError(f"{option} has no use without the client's learning rate; give --lr, too, or drop it")
    return None


def _plain(lr: float | None, steps: int | None, batch: int | None) -> tuple[tuple[str, float | None], ...]:
    return ("--lr", lr), ("--local-steps", steps), ("--local-batch", batch)


def load_any_update(
    path: Path,
    *,
    before: Path | None,
    kind: str | None,
    local: LocalTraining | None,
    num_examples: int | None,
    redeclared: bool = False,
) -> SharedUpdate:
    """An update file, or the difference of two state dicts.

    What a file says of its training must agree with `local`, unless it is declared anew: who reads in a diagnosis that
    another description explains an update better needs no other file to try it.
    """
    if kind not in (None, "gradient", "delta"):
        raise UsageError(f"--kind must be 'gradient' or 'delta', got {kind!r}")
    if local is not None and before is None:
        _check_delta(path, kind or read_kind(path))
    if redeclared:
        update = load_update(path, kind=kind, before=before, num_examples=num_examples)  # type: ignore[arg-type]
        return replace(update, local=local)
    return load_update(path, kind=kind, before=before, local=local, num_examples=num_examples)  # type: ignore[arg-type]


def _check_delta(path: Path, kind: str | None) -> None:
    if kind is None:
        raise UsageError(
            f"{path} does not say whether it is a gradient or a change of weights, and only the latter has a use for "
            "a learning rate; give --kind delta with it, or --kind gradient without it"
        )
    if kind == "gradient":
        raise UsageError(
            f"{path} is read as a gradient, for which --local, --lr, --local-steps and --local-batch have no use; "
            "drop them, or use --kind delta with a change of weights"
        )


def load_labels(text: str, network: nn.Module, *, update: SharedUpdate, shape: tuple[int, ...]) -> Tensor:
    """Labels from the command line, as many as there are examples, each a class of `network`."""
    labels = torch.tensor(parse_numbers(text, "--labels"))
    outputs = settle(freeze(network)[0], shape).outputs
    try:
        check_labels(labels, outputs)
    except BadInputError as error:
        raise UsageError(f"--labels {text}: {error}") from error
    if update.num_examples not in (None, len(labels)):
        raise UsageError(
            f"--labels {text}: got {len(labels)} labels for an update of {update.num_examples} examples; "
            "give one label per example"
        )
    return labels


def refuse_zero(update: SharedUpdate, path: Path) -> None:
    """Refuse a file that holds nothing: here it is the file that is bad, not the choice of attack."""
    try:
        check_not_zero(update.tensors)
    except UnsuitableError as error:
        raise BadInputError(f"{path}: {error}") from error


def refuse_weights(update: SharedUpdate, network: nn.Module, path: Path) -> None:
    """Refuse a state dict passed as an update: an attack on it ends in noise that looks like protection."""
    parameters = {name: value.detach() for name, value in network.named_parameters() if name in update.tensors}
    own = {name: update.tensors[name] for name in parameters}
    cosine = dot(own, parameters) / (global_norm(own) * global_norm(parameters)).clamp_min(1e-30)
    if float(cosine) > _SAME_WEIGHTS:
        raise BadInputError(
            f"{path} holds weights much like the model's own (cosine {float(cosine):.3f}), not an update; "
            "expected a gradient or a change of weights: pass the weights before training as --before"
        )


@contextmanager
def name_options(*arguments: str) -> Iterator[None]:
    """Let errors of the library, which name its arguments, name the options of the command instead."""
    try:
        yield
    except (MissingDataError, UsageError) as error:
        pattern = rf"\b({'|'.join(arguments)})=(['\"]?)([^\s,;'\"]+)\2"
        raise type(error)(re.sub(pattern, r"--\1 \3", str(error))) from error


def parse_numbers(text: str, option: str) -> list[int]:
    """Comma-separated whole numbers."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{option} needs whole numbers separated by commas, got {text!r}") from error
