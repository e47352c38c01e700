"""Captured updates of one round, attacked in a process of their own: a training that is watched does not wait for it.

The process reads one request from standard input and writes a line of JSON for each update, so that what was done
before it is stopped is not lost. It ends with the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from leakscope.audits.findings import number
from leakscope.audits.update_files import AttackedUpdate, attack_update
from leakscope.errors import BadInputError, KnowledgeError, LeakscopeError, UnsuitableError
from leakscope.files import check_update, load_update
from leakscope.models import load_weights
from leakscope.observation.observe import observe
from leakscope.observation.scenario import get_scenario
from leakscope.registry import attack_from_spec
from leakscope.types import Batch, Knowledge, SharedUpdate
from leakscope.user_code import call, import_function

# Training has the right of way.
_NICE = 10
_PARENT_EVERY = 1.0


@dataclass(frozen=True)
class CapturedUpdate:
    """One file; `client` is what the function of the true examples is called with, where it is known."""

    path: str
    weights: str
    name: str
    client: int | None = None


@dataclass(frozen=True)
class CaptureRequest:
    """Updates of one round, and how they are attacked.

    Attributes:
        updates: the files, each with that of the weights its client started from.
        model: `package.module:function` that builds the network.
        attack: spec of the attack.
        scenario: what the server knows.
        input_shape: shape of one input.
        bounds: range of the inputs, or None.
        truth: `package.module:function` that returns the examples of a client, or None.
        seed: of the attack.
    """

    updates: tuple[CapturedUpdate, ...]
    model: str
    attack: str
    scenario: str
    input_shape: tuple[int, ...]
    bounds: tuple[float, float] | None = (0.0, 1.0)
    truth: str | None = None
    seed: int = 0

    @classmethod
    def of(cls, told: dict[str, Any]) -> CaptureRequest:
        """A request as it came through a pipe."""
        updates = tuple(CapturedUpdate(**one) for one in told["updates"])
        bounds = None if told["bounds"] is None else (float(told["bounds"][0]), float(told["bounds"][1]))
        shape = tuple(int(side) for side in told["input_shape"])
        return cls(**{**told, "updates": updates, "bounds": bounds, "input_shape": shape})


def attack_captured(request: CaptureRequest) -> Iterator[dict[str, Any]]:
    """What comes back out of each update, one after the other; one that cannot be attacked does not stop the others."""
    for one in request.updates:
        began = time.perf_counter()
        try:
            found = _attack(request, one)
        except LeakscopeError as error:
            refused = isinstance(error, KnowledgeError | UnsuitableError)
            found = {"status": "refused" if refused else "error", "reason": str(error)}
        yield {"name": one.name, "client": one.client, **found, "seconds": round(time.perf_counter() - began, 3)}


def _attack(request: CaptureRequest, one: CapturedUpdate) -> dict[str, Any]:
    network = load_weights(build_network(request.model), one.weights)
    update = check_update(load_update(one.path), network, partial=True)
    truth = _truth(request, one, update)
    rung = get_scenario(request.scenario)
    targets = truth.targets if truth is not None and Knowledge.LABELS in rung.grants else None
    seen = observe(network, update, scenario=rung, input_shape=request.input_shape, targets=targets)
    if seen.vocabulary is None:
        seen = replace(seen, bounds=request.bounds if truth is None else truth.bounds)
    attacked = attack_update(attack_from_spec(request.attack), seen, truth=truth, seed=request.seed)
    return _row(attacked)


def build_network(name: str) -> nn.Module:
    """The network that a function of the user's builds."""
    expected = "a function without arguments that returns a torch.nn.Module"
    built = call(name, import_function(name, allow_code=True, expected=expected), expected=expected)
    if not isinstance(built, nn.Module):
        raise BadInputError(f"{name!r} returned a {type(built).__name__}; expected {expected}")
    return built


def _truth(request: CaptureRequest, one: CapturedUpdate, update: SharedUpdate) -> Batch | None:
    if request.truth is None or one.client is None:
        return None
    expected = "a function of a client's number that returns a leakscope.Batch"
    function: Any = import_function(request.truth, allow_code=True, expected=expected)
    batch = call(request.truth, lambda: function(one.client), expected=expected)
    if not isinstance(batch, Batch):
        raise BadInputError(f"{request.truth!r} returned a {type(batch).__name__}; expected {expected}")
    if update.num_examples not in (None, len(batch)):
        raise BadInputError(
            f"{request.truth!r} gives {len(batch)} examples for client {one.client}, whose update is of "
            f"{update.num_examples}; return exactly those behind it"
        )
    return batch


def _row(attacked: AttackedUpdate) -> dict[str, Any]:
    result, fit = attacked.result, attacked.found.fit
    scored = None if result.scores is None or "psnr" not in result.scores.metrics else result.scores.psnr
    best_null = None if result.baseline_psnr is None else float(result.baseline_psnr.max())
    return {
        "status": str(result.status),
        "reason": "" if fit is None else fit.diagnosis,
        "explained": None if fit is None else number(fit.explained),
        "unrelated": None if fit is None else number(fit.unrelated),
        "examples": len(attacked.found.inputs),
        "worst_psnr": None if scored is None else float(scored.max()),
        "mean_psnr": None if scored is None else float(scored.mean()),
        "best_null_psnr": best_null,
    }


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_EVERY)
    os._exit(1)


def main() -> None:
    """Entry point of the process: `python -m leakscope.audits.captured`."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    os.nice(_NICE)
    torch.set_num_threads(1)
    # Code of the user's may print: answers have standard output to themselves.
    answers, sys.stdout = sys.stdout, sys.stderr
    for row in attack_captured(CaptureRequest.of(json.loads(sys.stdin.read()))):
        answers.write(json.dumps(row) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
