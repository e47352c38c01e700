"""What a worker does with a cell of a recipe: the same audit, the same training, or a function of the recipe's own."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakscope import data
from leakscope.audits.cell import run_cell
from leakscope.audits.findings import number, thin
from leakscope.errors import UsageError, suggest
from leakscope.federated.keys import evaluate_keys
from leakscope.metrics import legacy
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.reproduction.keys import check_unchanged, load_victims
from leakscope.reproduction.networks import build_network, keep_networks
from leakscope.reproduction.results import PROCESSOR, CallValues
from leakscope.reproduction.trainings import PLANE, TrainingData, load_training, plane_network, train
from leakscope.runner import CellOutcome, NamedCall
from leakscope.types import AuditResult, Batch, LocalTraining, Status

# Side of the picture of what a model in the plane decides.
BOUNDARY = 96


def execute_cell(spec: Mapping[str, Any], *, root: str = "", cache: str = "") -> CellOutcome:
    """Run one cell; `root` is the checkout that holds its recipe, `cache` keeps trained networks."""
    if root and root not in sys.path:
        sys.path.insert(0, root)
    check_unchanged(spec)
    kinds = {"attack": _attack, "training": _train, "call": _call}
    with keep_networks(Path(cache) if cache else None):
        began = time.process_time()
        outcome = kinds[spec["kind"]](spec)
    # Processor time: other programs on the machine must not change a price, nor a claim about time.
    return replace(outcome, measured={**outcome.measured, PROCESSOR: time.process_time() - began})


def _attack(spec: Mapping[str, Any]) -> CellOutcome:
    victims = load_victims(spec)
    attack = attack_from_spec(spec["attack"])
    result = run_cell(
        build_network(spec["network"], spec["data"], victims[0]),
        victims,
        attack,
        defence=defence_from_spec(spec["defence"]),
        adaptive=spec["adaptive"],
        local=None if spec["local"] is None else LocalTraining(**spec["local"]),
        scenario=spec["scenario"],
        seed=spec["seed"],
        task=data.info(spec["data"]).task,
        rounds=spec["rounds"],
        with_lpips=spec["lpips"],
        prior_alone=False,
    )
    values = _columns(result, [len(victim) for victim in victims], legacy_metric=spec["legacy"])
    values |= {"loss": number(result.loss), "evaluations": result.evaluations, "history": thin(result.history)}
    record = {"values": values, "notes": list(result.notes)}
    return CellOutcome(result.status, record, _pictures(result, victims, spec["pictures"]), seconds=result.seconds)


def _columns(result: AuditResult, sizes: Sequence[int], *, legacy_metric: str) -> dict[str, Any]:
    """Every metric, one list per victim with one value per example."""
    columns: dict[str, Tensor] = {}
    if result.scores is not None:
        columns |= {**result.scores.metrics, "label_correct": result.scores.label_correct.float()}
    if result.trained_scores is not None:
        columns |= {f"trained_{name}": column for name, column in result.trained_scores.metrics.items()}
    if result.baseline_psnr is not None:
        columns["baseline_psnr"] = result.baseline_psnr
    if legacy_metric and result.truth is not None and result.reconstruction is not None:
        columns[legacy_metric] = _find_legacy(legacy_metric)(result.reconstruction, result.truth)
    # Several rounds are rows of the same result; the last ones are the last round's.
    return {name: _split(column[-sum(sizes) :], sizes) for name, column in columns.items()}


def _find_legacy(name: str) -> Any:
    known = {one: function for one, function in vars(legacy).items() if one.startswith("psnr_")}
    if name not in known:
        raise UsageError(f"there is no legacy metric {name!r}.{suggest(name, known)}")
    return known[name]


def _split(column: Tensor, sizes: Sequence[int]) -> list[list[float | None]]:
    return [[number(value) for value in part.tolist()] for part in column.split(list(sizes))]


def _pictures(result: AuditResult, victims: Sequence[Batch], count: int) -> dict[str, Tensor]:
    rows = sum(len(victim) for victim in victims[:count])
    if not rows or result.truth is None or result.reconstruction is None or result.truth.ndim != 4:
        return {}
    return {"truth": result.truth[:rows], "reconstruction": result.reconstruction[:rows].clamp(0, 1)}


def _train(spec: Mapping[str, Any]) -> CellOutcome:
    how = spec["training"]
    subject = load_training(how)
    first = how["data"] if isinstance(how["data"], str) else how["data"][0]
    is_plane = first == PLANE
    model = plane_network(how["seed"]) if is_plane else build_network(spec["network"], first, subject.test)
    done = train(model, how, subject=subject)
    last = done.rounds[-1]
    values: dict[str, Any] = {
        "accuracy": number(last.accuracy),
        "loss": number(last.loss),
        "accuracies": [number(one.accuracy) for one in done.rounds],
        "losses": [number(one.loss) for one in done.rounds],
        "weights": [number(weight) for weight in last.weights.values()],
        "bytes_up": sum(one.bytes_up for one in done.rounds),
        "bytes_down": sum(one.bytes_down for one in done.rounds),
        "tested": len(subject.test),
    }
    if done.network.private:
        keys = evaluate_keys(done, model, subject.test)
        values |= {"own_keys": list(keys.own.values()), "random_key": keys.random_key}
        values |= {"initial_locks": keys.initial_locks, "random_and_initial": keys.random_and_initial}
    pictures = {"boundary": _boundary(done.model, subject)} if is_plane else {}
    return CellOutcome(Status.OK, {"values": values, "notes": []}, pictures)


@torch.no_grad()
def _boundary(model: torch.nn.Module, subject: TrainingData) -> Tensor:
    """The class of every cell of the square round the test examples, row by row from the top: uint8 [side, side]."""
    low, high = subject.test.inputs.amin(0), subject.test.inputs.amax(0)
    middle, half = (low + high) / 2, (high - low).max() / 2
    centres = (torch.arange(BOUNDARY) + 0.5) / BOUNDARY * 2 - 1
    across = (middle[0] + half * centres).repeat(BOUNDARY)
    up = (middle[1] - half * centres).repeat_interleave(BOUNDARY)
    return model(torch.stack([across, up], 1)).argmax(1).reshape(BOUNDARY, BOUNDARY).to(torch.uint8)


def _call(spec: Mapping[str, Any]) -> CellOutcome:
    function: Any = NamedCall(spec["function"]).find()
    found = function(**spec["settings"])
    if not isinstance(found, CallValues):
        raise UsageError(
            f"{spec['function']} must return a leakscope.reproduction.CallValues, got {type(found).__name__}"
        )
    values = {name: _plain(value) for name, value in found.values.items()}
    return CellOutcome(Status.OK, {"values": values, "notes": list(found.notes)}, dict(found.pictures))


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, Sequence) else number(float(value))
