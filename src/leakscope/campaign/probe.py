"""Runs a cell for three steps on random pictures, to tell what all of it would cost.

Two runs of 3 and 6 steps are compared: what they share is set-up, what the second has more is
three steps, one from each third of the schedule. No private example is read. Time is that of the
processor: a worker has one thread, and a busy machine would make each short run a lottery. What the
machine's other work costs is one ratio, taken over whole probes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from statistics import median
from typing import Any

import torch
from torch import nn

from leakscope import rng as random
from leakscope.campaign.kinds import attack_as_run
from leakscope.campaign.stepped import length_of, resized
from leakscope.campaign.subject import Subject
from leakscope.cell import audit
from leakscope.client import client_step
from leakscope.errors import KnowledgeError, UnsuitableError
from leakscope.federated import measure_utility
from leakscope.matching.lockstep import LOCKSTEP_BYTES
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.sweep import CellOutcome, memory
from leakscope.types import Batch, LocalTraining, Status

STEPS = 3
# A warm-up above the first is the measurement; a warm run above the second is too.
_TOO_SLOW_SECONDS, _SLOW_SECONDS = 3.0, 1.0
_REPEATS, _REPEAT_SECONDS = 5, 0.5
_TESTED = 256


@dataclass(frozen=True)
class Measured:
    """Seconds before the first step and for each step, of a whole cell; memory on top of the process."""

    fixed: float
    step: float
    mb: float
    how: str = ""


@dataclass(frozen=True)
class _Timed:
    """One run: its seconds, and the steps' worth of work it did before it stopped."""

    seconds: float
    steps: float


def probe(spec: Mapping[str, Any]) -> CellOutcome:
    """Measure one kind of cell; runs in a worker process."""
    torch.manual_seed(0)
    _warm()
    memory.release()
    memory.reset_peak()
    base = memory.peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        found = _attack(spec) if spec["kind"] == "attack" else _utility(spec)
    except (KnowledgeError, UnsuitableError) as refusal:
        return CellOutcome(Status.REFUSED, {"error": str(refusal)})
    numbers = {
        "fixed": found.fixed, "step": found.step, "mb": found.mb, "base_mb": base,
        "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu,
    }  # fmt: skip
    return CellOutcome(Status.OK, {"how": found.how}, measured=numbers)


@cache
def _warm() -> None:
    """Import and set up, once per process, what every cell uses: it is no cell's own cost."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    batch = synthetic(1, {"classes": 2, "shape": [1, 8, 8]})
    audit(model, batch, attack_from_spec("inverting-gradients:steps=2"))


def synthetic(count: int, spec: Mapping[str, Any]) -> Batch:
    """Random pictures and labels of the right shape."""
    rng = random.generator(0, "probe")
    labels = torch.randint(spec["classes"], (count,), generator=rng)
    return Batch(random.uniform((count, *spec["shape"]), rng), labels)


def _attack(spec: Mapping[str, Any]) -> Measured:
    length, model = length_of(attack_as_run(spec)), Subject(dict(spec["subject"])).model()
    run = partial(_attack_run, spec, model)
    groups = spec["victims"] * length.restarts
    first, mb = _with_memory(lambda: run(steps=STEPS, victims=1, restarts=1))
    if first.seconds < _TOO_SLOW_SECONDS:
        first = run(steps=STEPS, victims=1, restarts=1)
    if first.seconds > _SLOW_SECONDS:
        # Set-up counts as steps here: too high rather than too low.
        step = first.seconds / first.steps * groups if length.steps else 0.0
        return Measured(0.0 if length.steps else first.seconds * groups, step, mb, "measured on one victim only")
    room = max(1, int(_SLOW_SECONDS / first.seconds))
    victims = min(spec["victims"], room)
    restarts = min(length.restarts, max(1, room // victims))
    scale = groups / (victims * restarts)
    at = partial(run, victims=victims, restarts=restarts)
    if length.steps is None:
        whole, mb = _with_memory(lambda: at(steps=None))
        return Measured(whole.seconds * scale, 0.0, mb)
    _, mb = _with_memory(lambda: at(steps=STEPS))
    if attack_as_run(spec).runs_in_lockstep:
        # In lockstep memory grows with the runs, up to where the engine splits them.
        mb = min(mb * scale, max(mb, LOCKSTEP_BYTES / 1e6))
    fixed, step = _fixed_and_step(lambda steps: at(steps=steps))
    return Measured(fixed * scale, step * scale, mb)


def _attack_run(spec: Mapping[str, Any], model: nn.Module, *, steps: int | None, victims: int, restarts: int) -> _Timed:
    size = spec["batch_size"]
    examples = synthetic(victims * size, spec)
    parts = zip(examples.inputs.split(size), examples.targets.split(size), strict=True)
    batches = [Batch(inputs, targets) for inputs, targets in parts]
    began = time.process_time()
    found = audit(
        model, batches, attack_from_spec(spec["attack"]), defence=defence_from_spec(spec["defence"]),
        adaptive=spec["adaptive"], local=None if spec["local"] is None else LocalTraining(**spec["local"]),
        scenario=spec["scenario"], with_lpips=spec["lpips"],
        limited=partial(resized, steps=steps, restarts=restarts, retries=0),
    )  # fmt: skip
    return _Timed(time.process_time() - began, _steps_done(spec, found.evaluations / victims, asked=steps or 1))


def _steps_done(spec: Mapping[str, Any], evaluations: float, *, asked: int) -> float:
    """Steps a run really made: on random data L-BFGS often stops in the middle of its first one."""
    of_one = resized(attack_as_run(spec), steps=1).effort.evaluations
    return asked if of_one is None or evaluations <= 0 else min(asked, evaluations / of_one)


def _utility(spec: Mapping[str, Any]) -> Measured:
    run = partial(_utility_run, spec, Subject(dict(spec["subject"])).model())
    # The cell reads both sets whole.
    held = 4 * sum(spec["sizes"].values()) * int(torch.tensor(spec["shape"]).prod()) / 1e6
    first, mb = _with_memory(lambda: run(STEPS))
    if first.seconds > _TOO_SLOW_SECONDS:
        return Measured(0.0, first.seconds / STEPS, mb + held, "measured on the first 3 rounds only")
    fixed, step = _fixed_and_step(run)
    return Measured(fixed * max(1.0, spec["sizes"]["test"] / _TESTED), step, mb + held)


def _utility_run(spec: Mapping[str, Any], model: nn.Module, rounds: int) -> _Timed:
    training = {**spec["training"], "rounds": rounds}
    del training["examples"]
    plain, defence = client_step(), defence_from_spec(spec["defence"])
    train = synthetic(training["clients"] * max(2, training["batch_size"]), spec)
    began = time.process_time()
    measure_utility(
        model if defence is None else defence.harden(model), train, synthetic(_TESTED, spec),
        step=plain if defence is None else defence.wrap(plain), **training,
    )  # fmt: skip
    return _Timed(time.process_time() - began, rounds)


def _fixed_and_step(run: Callable[[int], _Timed]) -> tuple[float, float]:
    """Set-up and one step, each the median of a few runs of 3 and 6 steps."""
    short, long = [run(STEPS)], [run(2 * STEPS)]
    while len(short) < _REPEATS and sum(one.seconds for one in (*short, *long)) < _REPEAT_SECONDS:
        short.append(run(STEPS))
        long.append(run(2 * STEPS))
    few, many = (_Timed(median(one.seconds for one in runs), runs[0].steps) for runs in (short, long))
    more = many.steps - few.steps
    # Runs that stop before the third step, or that the machine disturbed, tell no difference.
    told = more >= 1 and many.seconds > few.seconds
    step = (many.seconds - few.seconds) / more if told else many.seconds / many.steps
    return max(0.0, few.seconds - few.steps * step), step


def _with_memory(run: Callable[[], _Timed]) -> tuple[_Timed, float]:
    memory.release()
    memory.reset_peak()
    base = memory.peak_mb()
    timed = run()
    return timed, max(0.0, memory.peak_mb() - base)
