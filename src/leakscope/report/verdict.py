"""The verdict: one letter, one headline, a few sentences.

The letter is that of the worst example over all undefended cells: privacy is lost one person
at a time, and an average hides the one who lost it. A defence is judged by the stronger of
two attackers, the one unaware of it and the one who knows it.
"""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.report.evidence import (
    ENOUGH_OK,
    NO_DEFENCE,
    NOT_ATTACKABLE,
    DefenceEvidence,
    Group,
    by_defence,
    group,
    is_evidence,
)
from leakscope.report.grades import GRADES, UNKNOWN
from leakscope.report.schema import CellRecord, DefenceCost, SelfCheck, Verdict
from leakscope.report.words import (
    best_defence,
    broken_by_knowledge,
    failures,
    reach,
    self_check_words,
    what_was_rebuilt,
)


def verdict(
    cells: Sequence[CellRecord],
    threshold_psnr: float,
    *,
    defences: Sequence[DefenceCost] = (),
    self_check: SelfCheck | None = None,
) -> Verdict:
    """Judge a run.

    `status` is "leak" when an undefended image exceeds `threshold_psnr`, "within" when none
    does, and "inconclusive" when fewer than 95 % of the attackable cells ended ok or the
    self-check failed: an attack that broke down says nothing about protection.

    Args:
        cells: the attacks that were run.
        threshold_psnr: PSNR in dB above which an image counts as leaked.
        defences: what protection costs.
        self_check: the known-answer attack, where one was run.
    """
    rows = by_defence(cells, defences)
    judged, everything = _evidence_to_judge(cells), group(cells)
    if not everything.is_trusted or not judged.is_trusted or (self_check is not None and not self_check.passed):
        return _inconclusive(cells, judged=judged, rows=rows, check=self_check)
    return _conclusive(judged, rows=rows, threshold=threshold_psnr, check=self_check, everything=everything)


def _evidence_to_judge(cells: Sequence[CellRecord]) -> Group:
    # A run of defended cells only is judged by what it contains.
    plain = [cell for cell in cells if cell.defence == NO_DEFENCE]
    return group(plain or cells)


def _conclusive(
    judged: Group,
    *,
    rows: Sequence[DefenceEvidence],
    threshold: float,
    check: SelfCheck | None,
    everything: Group,
) -> Verdict:
    worst = judged.worst
    level = worst.level if worst else 0
    sentences = [
        what_was_rebuilt(judged),
        reach(judged, threshold),
        best_defence(rows),
        broken_by_knowledge(rows),
        self_check_words(check, everything),
    ]
    return Verdict(
        grade=GRADES[level].letter,
        status="leak" if judged.above(threshold) else "within",
        headline=GRADES[level].headline,
        sentences=[sentence for sentence in sentences if sentence],
    )


def _inconclusive(
    cells: Sequence[CellRecord],
    *,
    judged: Group,
    rows: Sequence[DefenceEvidence],
    check: SelfCheck | None,
) -> Verdict:
    everything = group(cells)
    failed = [cell for cell in cells if cell.status not in NOT_ATTACKABLE and not is_evidence(cell)]
    sentences = [_why(everything, judged, check), failures(failed)]
    if judged.worst:
        sentences.append("What did finish is a lower bound. " + what_was_rebuilt(judged))
        sentences.append(broken_by_knowledge(rows))
    sentences.append("Fix the failed attacks (more memory, more time, other settings) and run the same command again.")
    return Verdict(
        grade=UNKNOWN,
        status="inconclusive",
        headline="This run cannot tell whether updates are safe",
        sentences=[sentence for sentence in sentences if sentence],
    )


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
    return (
        f"Only {chosen.ok} of {chosen.attackable} attacks{scope} ended with a usable result; "
        f"{ENOUGH_OK:.0%} are needed, because an attack that breaks down does not show protection."
    )
