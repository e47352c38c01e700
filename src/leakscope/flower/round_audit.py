"""The audit of a training that goes on: a sample of every round, attacked beside it and within a budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
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
        seconds: time for the sample of one round; what is not done by then is skipped, by name.
        finish_seconds: time after the last round for those that still wait; what is left then is skipped, by name.
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
    finish_seconds: float = 600.0
    scenario: str = "C"
    truth: str | Callable[[int], Batch] | None = None
    bounds: tuple[float, float] | None = (0.0, 1.0)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sample < 1 or not self.seconds > 0:
            raise UsageError(f"RoundAudit needs sample ≥ 1 and seconds > 0, got {self.sample} and {self.seconds}")
        if not self.finish_seconds >= 0:
            raise UsageError(f"RoundAudit needs finish_seconds ≥ 0, got {self.finish_seconds}")
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
    """Runs one round's audit at a time in the background, in a thread that only waits for a process.

    Rounds that come meanwhile wait: their files are on disk, and a request is a few lines. Of those that wait, the one
    farthest from all that were attacked is next, so that a budget which does not reach all rounds is spread over them.
    """

    def __init__(self, log: LeakageLog, *, seconds: float, finish_seconds: float) -> None:
        """Start no process yet."""
        self._log, self._seconds, self._finish_seconds = log, seconds, finish_seconds
        self._waiting: dict[int, CaptureRequest] = {}
        self._begun: list[int] = []
        # Set when training has ended: until when a round may be begun.
        self._deadline: float | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="leakscope-audit", daemon=True)
        self._thread.start()

    def submit(self, turn: int, request: CaptureRequest) -> None:
        """Hand over a round; returns at once."""
        self._log.wait(turn, [update.name for update in request.updates])
        with self._changed:
            self._waiting[turn] = request
            self._changed.notify()

    def close(self) -> None:
        """Wait for what was handed over as long as there is time, and say what is left."""
        with self._changed:
            if self._deadline is None:
                self._deadline = time.monotonic() + self._finish_seconds
            self._changed.notify()
        # The last round may begin just before the deadline; a process that cannot be ended is left alone.
        self._thread.join(timeout=self._finish_seconds + self._seconds + _START_SECONDS)
        self._give_up()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            turn, request = job
            try:
                self._audit(turn, request)
            # A watcher that fails must not end the training: what it could not do is counted.
            except Exception as error:
                self._log.skip(turn, f"{type(error).__name__}: {error}")

    def _next(self) -> tuple[int, CaptureRequest] | None:
        """The round to attack next; None where training has ended and no round, or no time, is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._deadline is not None)
            is_late = self._deadline is not None and time.monotonic() >= self._deadline
            if not self._waiting or is_late:
                return None
            turn = choose_round(self._waiting, self._begun)
            self._begun.append(turn)
            return turn, self._waiting.pop(turn)

    def _give_up(self) -> None:
        with self._changed:
            left, self._waiting = sorted(self._waiting), {}
        for turn in left:
            self._log.skip(turn, f"no time was left for it {self._finish_seconds:g} s after the last round")

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
        if len(rows) < len(request.updates):
            self._log.skip(turn, reason or "the process ended without an answer")


def choose_round(waiting: Iterable[int], begun: Sequence[int]) -> int:
    """The waiting round that is farthest from all begun ones, the earliest of equals.

    Example:
        >>> choose_round([2, 3, 9], begun=[1])
        9
    """
    return max(sorted(waiting), key=lambda turn: min((abs(turn - other) for other in begun), default=0))
