"""Runs one cell for three steps on random pictures, to tell what all cells like it would cost.

Two runs of 3 and 6 steps are compared: what they share is set-up, what the second has more is
three steps, one from each third of the schedule. No private example is read. Time is that of the
processor: a worker has one thread, and a busy machine would make each short run a lottery.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from statistics import median
from typing import Any

import torch
from pydantic import Field
from torch import nn

from leakscope import rng as random
from leakscope.attack import Attack, Effort
from leakscope.audits.cell import run_cell
from leakscope.audits.inputs import Inputs
from leakscope.audits.specs import AttackCellSpec, CellSpec, TrainingCellSpec
from leakscope.audits.subject import Subject
from leakscope.errors import KnowledgeError, UnsuitableError
from leakscope.federated import measure_utility
from leakscope.matching.problem import LOCKSTEP_BYTES
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.runner import CellOutcome, limits
from leakscope.settings import Settings
from leakscope.tasks import Classification, Task
from leakscope.types import Batch, Status

STEPS = 3
# A first run above the first is the measurement; a second run above the second is too.
_TOO_SLOW_SECONDS, _SLOW_SECONDS = 3.0, 1.0
_REPEATS, _REPEAT_SECONDS = 5, 0.5
_TESTED = 256


class Sample(Settings):
    """A cell that stands for all that cost the same, and the shape of its data instead of the data."""

    cell: CellSpec = Field(discriminator="kind")
    shape: tuple[int, ...]
    classes: int
    train_size: int = 0
    test_size: int = 0


@dataclass(frozen=True)
class _Subject:
    """The network that a sample is measured on, what it is for, and made-up data of the right shape."""

    sample: Sample
    network: nn.Module
    task: Task | None

    def batch(self, count: int) -> Batch:
        """Random pictures and targets."""
        rng = random.generator(0, "sample")
        targets = (self.task or Classification()).draw_targets(count, self.sample.classes, rng)
        return Batch(random.uniform((count, *self.sample.shape), rng), targets)


@dataclass(frozen=True)
class _Timed:
    """One run: its seconds, and the steps' worth of work it did before it stopped."""

    seconds: float
    steps: float


def run_sample(spec: Mapping[str, Any], *, inputs: Inputs | None = None) -> CellOutcome:
    """Measure one sample, in a worker process.

    Seconds before the first step and for each step are those of a whole cell, memory is on top of the process.
    """
    sample = Sample.model_validate(dict(spec))
    subject = Subject(sample.cell.subject, inputs or Inputs())
    torch.manual_seed(0)
    _warm_up()
    limits.release_memory()
    limits.reset_peak()
    base = limits.peak_mb()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        cell = sample.cell
        tried = _Subject(sample, subject.model(), subject.task)
        numbers, how = _sample_attack(tried, cell) if cell.kind == "attack" else _sample_training(tried, cell)
    except (KnowledgeError, UnsuitableError) as refusal:
        return CellOutcome(Status.REFUSED, {"error": str(refusal)})
    numbers |= {"base_mb": base, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return CellOutcome(Status.OK, {"how": how}, measured=numbers)


def adapt_attack(cell: AttackCellSpec) -> Attack:
    """The attack of a cell, adapted to the defence where the cell's attacker knows it."""
    attack, defence = attack_from_spec(cell.attack), defence_from_spec(cell.defence)
    return defence.adapt(attack) if cell.adaptive and defence is not None else attack


@cache
def _warm_up() -> None:
    """Import and set up, once per process, what every cell uses: no cell pays for it."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    batch = Batch(torch.rand(1, 1, 8, 8), torch.zeros(1, dtype=torch.long))
    run_cell(model, batch, attack_from_spec("inverting-gradients:steps=2"), prior_alone=False)


def _sample_attack(tried: _Subject, cell: AttackCellSpec) -> tuple[dict[str, float], str]:
    attack = adapt_attack(cell)
    run = partial(_time_attack, tried, cell)
    first, mb = _measure_memory(lambda: run(STEPS, victims=1, restarts=1))
    if first.seconds < _TOO_SLOW_SECONDS:
        first = run(STEPS, victims=1, restarts=1)
    slow, room = first.seconds > _SLOW_SECONDS, max(1, int(_SLOW_SECONDS / first.seconds))
    victims, restarts = min(cell.victims, room), attack.effort.restarts or 1
    together = min(restarts, max(1, room // victims))
    at = partial(run, victims=victims, restarts=together)
    # What the attack reaches on an unrelated update is one more victim.
    scale = (cell.victims + cell.prior_alone) * restarts / (victims * together)
    how = "measured on one victim only" if slow else ""
    timed, mb = (first, mb) if slow else _measure_memory(lambda: at(STEPS))
    if attack.effort.steps is None:
        return {"fixed": timed.seconds * scale, "step": 0.0, "mb": mb}, how
    if attack.runs_in_lockstep:
        # Memory grows with the runs, up to where the engine splits them.
        grows = cell.victims * restarts / (victims * together)
        mb = min(mb * grows, max(mb, LOCKSTEP_BYTES / 1e6))
    # Where it is slow, set-up counts as steps: too high rather than too low.
    fixed, step = (0.0, first.seconds / first.steps) if slow else _separate_set_up(at)
    return {"fixed": fixed * scale, "step": step * scale, "mb": mb}, how


def _time_attack(tried: _Subject, cell: AttackCellSpec, steps: int, *, victims: int, restarts: int) -> _Timed:
    size = cell.batch_size
    examples = tried.batch(victims * size)
    parts = zip(examples.inputs.split(size), examples.targets.split(size), strict=True)
    began = time.process_time()
    found = run_cell(
        tried.network,
        [Batch(inputs, targets) for inputs, targets in parts],
        attack_from_spec(cell.attack),
        defence=defence_from_spec(cell.defence),
        adaptive=cell.adaptive,
        local=cell.local,
        scenario=cell.scenario,
        task=tried.task,
        rounds=cell.rounds,
        with_lpips=cell.lpips,
        limited=lambda attack: attack.with_effort(Effort(steps, restarts, attempts=1)),
        prior_alone=False,
    )
    seconds = time.process_time() - began
    # Every update that was attacked by itself: those of several rounds, unless the attack joins them.
    attacked = victims if found.scores is None else len(found.scores) / size
    return _Timed(seconds, _count_steps(adapt_attack(cell), found.evaluations / attacked, asked=steps))


def _count_steps(attack: Attack, evaluations: float, *, asked: int) -> float:
    """Steps a run really made: on random data L-BFGS often stops in the middle of its first one."""
    of_one = attack.with_effort(Effort(1, attack.effort.restarts, attempts=1)).effort.evaluations
    return min(asked, evaluations / of_one) if of_one and evaluations > 0 else asked


def _sample_training(tried: _Subject, cell: TrainingCellSpec) -> tuple[dict[str, float], str]:
    run, seeds, sample = partial(_time_training, tried, cell), len(cell.seeds), tried.sample
    first, mb = _measure_memory(lambda: run(STEPS))
    # The cell reads both sets whole.
    mb += 4 * (sample.train_size + sample.test_size) * math.prod(sample.shape) / 1e6
    if first.seconds > _TOO_SLOW_SECONDS:
        return {"fixed": 0.0, "step": seeds * first.seconds / STEPS, "mb": mb}, "measured on the first 3 rounds only"
    fixed, step = _separate_set_up(run)
    return {"fixed": seeds * fixed * max(1.0, sample.test_size / _TESTED), "step": seeds * step, "mb": mb}, ""


def _time_training(tried: _Subject, cell: TrainingCellSpec, rounds: int) -> _Timed:
    told, defence = cell.training, defence_from_spec(cell.defence)
    train = tried.batch(told.shards * max(2, told.batch_size))
    began = time.process_time()
    measure_utility(
        tried.network,
        train,
        tried.batch(_TESTED),
        defence=defence,
        clients=told.shards,
        rounds=rounds,
        batch_size=told.batch_size,
        lr=told.lr,
        share=told.share,
        task=tried.task,
    )
    return _Timed(time.process_time() - began, rounds)


def _separate_set_up(run: Callable[[int], _Timed]) -> tuple[float, float]:
    """Seconds of set-up and of one step, each the median of a few runs of 3 and 6 steps."""
    short, long = [run(STEPS)], [run(2 * STEPS)]
    while len(short) < _REPEATS and sum(one.seconds for one in (*short, *long)) < _REPEAT_SECONDS:
        short.append(run(STEPS))
        long.append(run(2 * STEPS))
    few, many = (_Timed(median(one.seconds for one in runs), runs[0].steps) for runs in (short, long))
    more = many.steps - few.steps
    # Runs that stop before the third step, or that the machine disturbed, tell no difference.
    clear = more >= 1 and many.seconds > few.seconds
    step = (many.seconds - few.seconds) / more if clear else many.seconds / many.steps
    return max(0.0, few.seconds - few.steps * step), step


def _measure_memory(run: Callable[[], _Timed]) -> tuple[_Timed, float]:
    limits.release_memory()
    limits.reset_peak()
    base = limits.peak_mb()
    timed = run()
    return timed, max(0.0, limits.peak_mb() - base)
