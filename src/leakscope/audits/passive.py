"""What an honest-but-curious server could take from one update of a model: the strongest attack a budget allows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn

from leakscope.attack import Attack, Effort
from leakscope.audits.cell import run_cell
from leakscope.audits.config import DEFAULT_ATTACKS, RESIDUAL_ATTACKS
from leakscope.errors import KnowledgeError, UnsuitableError, UsageError
from leakscope.networks import is_residual_with_stored_statistics
from leakscope.registry import attack_from_spec
from leakscope.report.grades import RECOGNISABLE, find_worst, letter, level_example
from leakscope.tasks import Task
from leakscope.types import AuditResult, Batch, Status

# The server that knows most: labels, sizes, rates.
_SCENARIO = "A"
# Steps of a first short run that tells what a step takes.
_SAMPLE_STEPS = 4
# The same attack runs on an unrelated update, too.
_RUNS = 2


@dataclass(frozen=True)
class Rebuilt:
    """The worst example of one attack.

    Attributes:
        attack: which one.
        status: how it ended; only "ok" is evidence that nothing leaks.
        grade: A to F, "?" without a score.
        level: 0 to 5, None without a score.
        psnr: in dB.
        without: what is reached without the update, in dB.
    """

    attack: str
    status: Status
    grade: str
    level: int | None
    psnr: float | None
    without: float | None

    @property
    def is_recognisable(self) -> bool:
        """Whether a person can tell what is in the example."""
        return self.level is not None and self.level >= RECOGNISABLE


@dataclass(frozen=True)
class PassiveRisk:
    """What attacks of an honest server reached.

    Attributes:
        examples: behind the update that was attacked.
        seconds: what all of it took.
        rebuilt: one entry for every attack that ran, the worst first.
        refused: attacks that do not work on this network, with the reason.
    """

    examples: int
    seconds: float
    rebuilt: tuple[Rebuilt, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def worst(self) -> Rebuilt | None:
        """The attack that got most."""
        return self.rebuilt[0] if self.rebuilt else None

    @property
    def is_evidence(self) -> bool:
        """Whether what was not found means something: every attack that ran came to an end."""
        return bool(self.rebuilt) and all(one.status is Status.OK for one in self.rebuilt)


def measure_passive_risk(
    model: nn.Module,
    batch: Batch,
    *,
    seconds: float,
    seed: int = 0,
    task: Task | None = None,
    attacks: Sequence[str] | None = None,
) -> PassiveRisk:
    """Audit one update of `batch` by the attacks of an ordinary audit, closed forms first, within `seconds`.

    Searches are shortened to what is left of the time; one that becomes too short for its end to mean anything says so
    by its status. The server is honest and knows everything else (scenario A).

    Args:
        model: the network, in the mode in which the client trains it.
        batch: the private examples behind the update.
        seconds: wall time to spend; closed forms run in any case.
        seed: of the attacks.
        task: what the network is for.
        attacks: specs instead of those an audit uses.
    """
    if not seconds > 0:
        raise UsageError(f"a budget of {seconds} seconds leaves no time for an attack; give more, or none at all")
    began, rebuilt, refused = time.monotonic(), list[Rebuilt](), list[tuple[str, str]]()
    chosen = [attack_from_spec(spec) for spec in attacks or _usual_attacks(model, tuple(batch.inputs.shape[1:]))]
    ordered = sorted(chosen, key=lambda one: one.effort.steps is not None)
    for place, attack in enumerate(ordered):
        left = (seconds - (time.monotonic() - began)) / (len(ordered) - place)
        try:
            fitting = _shorten(attack, model, batch, seconds=left, task=task)
            result = run_cell(model, batch, fitting, scenario=_SCENARIO, seed=seed, task=task)
        except (KnowledgeError, UnsuitableError) as refusal:
            refused.append((attack.name, str(refusal)))
            continue
        rebuilt.append(_grade(result))
    rebuilt.sort(key=lambda one: (one.level or 0, one.psnr or 0.0), reverse=True)
    return PassiveRisk(len(batch), time.monotonic() - began, tuple(rebuilt), tuple(refused))


def _usual_attacks(model: nn.Module, shape: tuple[int, ...]) -> tuple[str, ...]:
    return RESIDUAL_ATTACKS if is_residual_with_stored_statistics(model, shape) else DEFAULT_ATTACKS


def _shorten(attack: Attack, model: nn.Module, batch: Batch, *, seconds: float, task: Task | None) -> Attack:
    """The attack with as many steps as fit, at most its own; told by a short run."""
    effort = attack.effort
    if effort.steps is None or effort.steps <= _SAMPLE_STEPS:
        return attack
    began = time.monotonic()
    sample = attack.with_effort(Effort(steps=_SAMPLE_STEPS, restarts=1, attempts=1))
    run_cell(model, batch, sample, scenario=_SCENARIO, task=task, prior_alone=False)
    spent = time.monotonic() - began
    fitting = int((seconds - spent) / (_RUNS * spent / _SAMPLE_STEPS)) if spent > 0 else effort.steps
    steps = max(_SAMPLE_STEPS, min(effort.steps, fitting))
    # A second attempt would double the time.
    return attack.with_effort(replace(effort, steps=steps, attempts=1))


def _grade(result: AuditResult) -> Rebuilt:
    scores = result.scores
    if scores is None or "psnr" not in scores.metrics:
        return Rebuilt(result.attack, result.status, letter(None), None, None, None)
    psnr, ssim = scores.psnr.tolist(), scores.metrics.get("ssim")
    structure = None if ssim is None else ssim.tolist()
    without = None if result.baseline_psnr is None else result.baseline_psnr.tolist()
    place = find_worst(psnr, ssim=structure, baseline=without)
    if place is None:
        return Rebuilt(result.attack, result.status, letter(None), None, None, None)
    base = None if without is None else without[place]
    level = level_example(psnr[place], None if structure is None else structure[place], baseline_psnr=base)
    return Rebuilt(result.attack, result.status, letter(level), level, psnr[place], base)
