"""One audit from Python: attack and defence by name or value, and the attacks that a defence names as stronger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import nn

from leakscope.attack import Attack
from leakscope.audits.cell import run_cell
from leakscope.defence import Defence
from leakscope.errors import KnowledgeError, UnsuitableError
from leakscope.observation.scenario import Scenario
from leakscope.registry import as_defence, attack_from_spec
from leakscope.report.grades import find_worst
from leakscope.tasks import Task
from leakscope.types import AuditResult, Batch, LocalTraining, Loss, Scores, Status


def audit(
    model: nn.Module,
    batches: Batch | Sequence[Batch],
    attack: str | Attack,
    *,
    defence: str | Defence | None = None,
    adaptive: bool = False,
    local: LocalTraining | None = None,
    scenario: str | Scenario = "C",
    seed: int = 0,
    task: Task | None = None,
    loss: Loss | None = None,
    rounds: int | None = None,
    with_lpips: bool = False,
    public: Batch | None = None,
    prior_alone: bool = True,
) -> AuditResult:
    """One cell, with attack and defence by name or value; see `leakscope.audits.cell.run_cell`.

    Where the attacker knows the defence, attacks that the defence names as stronger are run as well: their results
    are in `also`, and a note says how they compare.
    """
    chosen = attack_from_spec(attack) if isinstance(attack, str) else attack
    protection = as_defence(defence) if defence is not None else None

    def run(one: Attack) -> AuditResult:
        return run_cell(
            model,
            batches,
            one,
            defence=protection,
            adaptive=adaptive,
            local=local,
            scenario=scenario,
            seed=seed,
            task=task,
            loss=loss,
            rounds=rounds,
            with_lpips=with_lpips,
            public=public,
            prior_alone=prior_alone,
        )

    result = run(chosen)
    if not adaptive or protection is None or result.status is Status.SEALED:
        return result
    return _with_stronger(result, [spec for spec in protection.strong_attacks if attack_from_spec(spec) != chosen], run)


def _with_stronger(result: AuditResult, specs: Sequence[str], run: Callable[[Attack], AuditResult]) -> AuditResult:
    also, notes = [], list(result.notes)
    for spec in specs:
        named = f"{spec}, which is stronger under {result.defence} than most,"
        try:
            other = run(attack_from_spec(spec))
        except (KnowledgeError, UnsuitableError) as refusal:
            notes.append(f"{named} was refused: {refusal}")
            continue
        also.append(other)
        worst = "no result" if other.scores is None else f"{_worst(other.scores, other)} at worst"
        notes.append(f"{named} was run too: {other.status}, {worst}")
    return replace(result, also=tuple(also), notes=tuple(notes))


def _worst(scores: Scores, result: AuditResult) -> str:
    if "psnr" not in scores.metrics:
        return f"{100 * float(scores.leading.max()):.0f} % of the tokens"
    baseline = None if result.baseline_psnr is None else result.baseline_psnr.tolist()
    # Rows of a table have no structural similarity.
    ssim = scores.metrics.get("ssim")
    place = find_worst(scores.psnr.tolist(), ssim=None if ssim is None else ssim.tolist(), baseline=baseline)
    return f"{float(scores.psnr[place or 0]):.1f} dB"
