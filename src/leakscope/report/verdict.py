"""The verdict: one letter, one headline, a few sentences.

The letter is that of the worst example over all undefended cells: privacy is lost one person
at a time, and an average hides the one who lost it. A defence is judged by the stronger of
two attackers, the one unaware of it and the one who knows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from leakscope.report.evidence import (
    ENOUGH_OK,
    NOT_ATTACKABLE,
    DefenceEvidence,
    Example,
    Group,
    by_defence,
    group,
    is_evidence,
)
from leakscope.report.gate import EXIT_CODES, Gate, Outcome, cells_to_judge, gate
from leakscope.report.grades import GRADES, RECOGNISABLE, UNKNOWN
from leakscope.report.nouns import noun_of, reword_verdict
from leakscope.report.schema import CellRecord, DefenceCost, SelfCheck, Verdict, WorstImage
from leakscope.report.words import (
    best_defence,
    broken_by_knowledge,
    failures,
    reach,
    self_check_words,
    what_was_rebuilt,
)

__all__ = ["EXIT_CODES", "Gate", "Outcome", "gate", "verdict"]


def verdict(
    cells: Sequence[CellRecord],
    threshold_psnr: float,
    *,
    defences: Sequence[DefenceCost] = (),
    self_check: SelfCheck | None = None,
    never_run: int = 0,
    is_default: bool = False,
) -> Verdict:
    """Judge a run.

    `status` is that of the gate: "leak" when an undefended image exceeds `threshold_psnr`, whatever became of other
    attacks; "inconclusive" when fewer than 95 % of the attackable cells ended ok, an attack never did, cells never ran
    or the self-check failed, since an attack that broke down says nothing about protection; "within" otherwise.

    Args:
        cells: the attacks that were run.
        threshold_psnr: PSNR in dB above which an image counts as leaked.
        defences: what protection costs.
        self_check: the known-answer attack, where one was run.
        never_run: planned cells that did not run.
        is_default: whether nobody chose the threshold.
    """
    rows = by_defence(cells, defences)
    decided = gate(cells, threshold_psnr, self_check=self_check, never_run=never_run, is_default=is_default)
    judged, everything = cells_to_judge(cells), group(cells)
    level = decided.worst.level if decided.worst else 0
    # A picture that a person recognises is proof; otherwise failed attacks may hide a worse one.
    is_known = level >= RECOGNISABLE or (judged.is_trusted and decided.status != "inconclusive")
    if decided.status == "inconclusive":
        headline = GRADES[level].headline if is_known else "This run cannot tell whether updates are safe"
        sentences = _say_inconclusive(cells, judged=judged, rows=rows, check=self_check)
    else:
        headline = GRADES[level].headline
        failed = [cell for cell in cells if cell.status not in NOT_ATTACKABLE and not is_evidence(cell)]
        sentences = [
            what_was_rebuilt(judged),
            reach(judged, threshold_psnr),
            best_defence(rows),
            broken_by_knowledge(rows),
            "" if everything.is_trusted else failures(failed),
            self_check_words(self_check, everything),
        ]
    found = Verdict(
        grade=GRADES[level].letter if is_known and decided.worst else UNKNOWN,
        status=decided.status,
        headline=headline,
        sentences=[sentence for sentence in sentences if sentence],
        line=decided.line,
        exit_code=decided.exit_code,
        worst=None if decided.worst is None else _describe(decided.worst),
    )
    return reword_verdict(found, noun_of(cells))


def _describe(worst: Example) -> WorstImage:
    return WorstImage(
        key=worst.cell.key,
        index=worst.index,
        attack=worst.cell.attack,
        defence=worst.cell.defence,
        grade=worst.grade,
        psnr=_finite(worst.psnr),
        ssim=worst.ssim,
        gain=_finite(worst.gain),
        best_null=worst.best_null,
    )


def _finite(value: float | None) -> float | None:
    # JSON has no infinity.
    return value if value is not None and math.isfinite(value) else None


def _say_inconclusive(
    cells: Sequence[CellRecord],
    *,
    judged: Group,
    rows: Sequence[DefenceEvidence],
    check: SelfCheck | None,
) -> list[str]:
    failed = [cell for cell in cells if cell.status not in NOT_ATTACKABLE and not is_evidence(cell)]
    sentences = [_why(group(cells), judged, check), failures(failed)]
    if judged.worst:
        sentences.append("What was rebuilt is a lower bound. " + what_was_rebuilt(judged))
        sentences.append(broken_by_knowledge(rows))
    return [
        *sentences,
        "Fix the failed attacks (more memory, more time, other settings) and run the same command again.",
    ]


def _why(everything: Group, judged: Group, check: SelfCheck | None) -> str:
    if check is not None and not check.passed:
        return (
            "The self-check failed: an attack with a known answer did not find it, "
            "so no result of this run can be trusted."
        )
    if everything.attackable == 0:
        return "No update could be attacked: every cell was sealed or refused, so nothing was measured."
    chosen = everything if not everything.is_trusted else judged
    scope = "" if chosen is everything else " without defence"
    if chosen.is_trusted:
        return "Planned cells never ran to the end, so what they would have found is not known."
    if chosen.ok >= ENOUGH_OK * chosen.attackable:
        return f"No run of {', '.join(chosen.missing)}{scope} gave evidence, and it may be the one that leaks."
    return (
        f"Only {chosen.ok} of {chosen.attackable} attacks{scope} ended with a usable result; "
        f"{ENOUGH_OK:.0%} are needed, because an attack that breaks down does not show protection."
    )
