"""The audit of a training that goes on: a sample of every round, attacked beside it and within a budget."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from leakscope.audits.captured import CapturedUpdate, CaptureRequest
from leakscope.catalogue import check_spec
from leakscope.errors import UsageError
from leakscope.flower.leakage import LeakageLog
from leakscope.observation.scenario import get_scenario
from leakscope.rng import generator
from leakscope.types import Batch
from leakscope.user_code import is_code

# Of standard error, where a process ended without an answer.
_LAST_CHARACTERS = 300
# For a process to start and to end.
_START_SECONDS = 60.0


@dataclass(frozen=True)
class RoundAudit:
    """What is attacked of every round.

    Attributes:
        input_shape: shape of one input.
        attack: spec of the attack.
        sample: updates of a round that are attacked, drawn at random; all are on disk.
        seconds: time for the sample of one round; what is not done by then is counted as skipped.
        scenario: what the server knows.
        truth: the examples of a client, by its number, or `package.module:function` for it; for simulations, where
            they are known. Clients must say which they are: see `partition_mod`.
        bounds: range of the inputs, where there is no truth to say it.
        seed: of the sample and of the attack.
    """

    input_shape: tuple[int, ...]
    attack: str = "inverting-gradients"
    sample: int = 1
    seconds: float = 120.0
    scenario: str = "C"
    truth: str | Callable[[int], Batch] | None = None
    bounds: tuple[float, float] | None = (0.0, 1.0)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sample < 1 or not self.seconds > 0:
            raise UsageError(f"RoundAudit needs sample ≥ 1 and seconds > 0, got {self.sample} and {self.seconds}")
        check_spec("attack", self.attack)
        get_scenario(self.scenario)
        if self.truth is not None:
            name_function(self.truth, "truth")

    def request(self, updates: Sequence[CapturedUpdate], *, model: str, turn: int) -> CaptureRequest:
        """What the process is asked: a sample of the round's updates."""
        order = sorted(updates, key=lambda one: one.name)
        rng = generator(self.seed, "sample", turn)
        drawn = sorted(torch.randperm(len(order), generator=rng)[: self.sample].tolist())
        return CaptureRequest(
            updates=tuple(order[place] for place in drawn),
            model=model,
            attack=self.attack,
            scenario=self.scenario,
            input_shape=tuple(self.input_shape),
            bounds=self.bounds,
            truth=None if self.truth is None else name_function(self.truth, "truth"),
            seed=self.seed,
        )


def name_function(function: str | Callable[..., Any], what: str) -> str:
    """`package.module:function` of a function: the audit runs in a process that must find it again."""
    if isinstance(function, str):
        if not is_code(function):
            raise UsageError(f"{what} must be package.module:function, got {function!r}")
        return function
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or not name.isidentifier():
        raise UsageError(
            f"{what} must be a function at the top level of a module that can be imported, since the audit runs in a "
            f"process of its own; got {name} of {module}"
        )
    return f"{module}:{name}"


class RoundAuditor:
    """Runs one round's audit at a time in the background, in a thread that only waits for a process."""

    def __init__(self, log: LeakageLog, *, seconds: float) -> None:
        """Start no process yet."""
        self._log, self._seconds = log, seconds
        # One round waits while another is attacked; a third is skipped, or the audit would fall behind for good.
        self._waiting: queue.Queue[tuple[int, CaptureRequest] | None] = queue.Queue(maxsize=1)
        self._thread = threading.Thread(target=self._work, name="leakscope-audit", daemon=True)
        self._thread.start()

    def submit(self, turn: int, request: CaptureRequest) -> None:
        """Hand over a round; returns at once."""
        try:
            self._waiting.put_nowait((turn, request))
        except queue.Full:
            self._log.skip(turn, len(request.updates), "the audit of an earlier round was still waiting")

    def close(self) -> None:
        """Wait for what was handed over, each round at most its time."""
        if self._thread.is_alive():
            # One round under way, one that waits; a process that cannot be ended is left alone.
            patience = 2 * self._seconds + _START_SECONDS
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=patience)
                self._thread.join(timeout=patience)

    def _work(self) -> None:
        while (job := self._waiting.get()) is not None:
            turn, request = job
            try:
                self._audit(turn, request)
            # A watcher that fails must not end the training: what it could not do is counted.
            except Exception as error:
                self._log.skip(turn, len(request.updates), f"{type(error).__name__}: {error}")

    def _audit(self, turn: int, request: CaptureRequest) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        environment.setdefault("OMP_NUM_THREADS", "1")
        process = subprocess.Popen(
            [sys.executable, "-m", "leakscope.audits.captured"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            # Ctrl-C is the training's to answer.
            start_new_session=True,
        )
        reason = ""
        try:
            answers, errors = process.communicate(json.dumps(asdict(request)), timeout=self._seconds)
            if process.returncode:
                reason = f"the process ended with {process.returncode}: {errors.strip()[-_LAST_CHARACTERS:]}"
        except subprocess.TimeoutExpired:
            process.kill()
            answers, reason = process.communicate()[0], f"not done within {self._seconds:g} s"
        rows = [json.loads(line) for line in answers.splitlines() if line.endswith("}")]
        for row in rows:
            self._log.add(turn, {"attack": request.attack, "scenario": request.scenario, **row})
        if missing := len(request.updates) - len(rows):
            self._log.skip(turn, missing, reason)
