"""The one gate of an audit: status, printed line and exit code follow from the same decision.

An audit fails when a private example comes back above the threshold, whatever the status of the attack that rebuilt it
and however many others failed. It passes only on evidence. All else is inconclusive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from leakscope.metrics import exact_interval
from leakscope.report.evidence import ENOUGH_OK, NO_DEFENCE, NOT_ATTACKABLE, OK, Example, Group, group, is_evidence
from leakscope.report.schema import CellRecord, SelfCheck
from leakscope.report.words import decibel, plural

Outcome = Literal["leak", "within", "inconclusive"]
EXIT_CODES: dict[Outcome, int] = {"within": 0, "leak": 1, "inconclusive": 3}
_HEADS: dict[Outcome, str] = {"within": "PASSED", "leak": "FAILED", "inconclusive": "INCONCLUSIVE"}
# Where nobody set a gate there is nothing to pass or fail.
_FINDINGS: dict[Outcome, str] = {**_HEADS, "within": "WITHIN", "leak": "LEAK"}


@dataclass(frozen=True)
class Gate:
    """A decision and what it rests on.

    Attributes:
        status: "leak", "within" or "inconclusive".
        threshold: PSNR in dB above which an example counts as leaked.
        line: the decision in one line.
        worst: the worst example of the cells that are judged.
        above: private examples above the threshold.
        total: private examples that were attacked.
        interval: the share of such examples that is above the threshold, at 95 % confidence; None without examples.
        is_default: whether nobody set the gate: then a leak is a finding, and the exit code of a whole run stays 0.
        never_run: planned cells that did not run.
    """

    status: Outcome
    threshold: float
    line: str
    worst: Example | None
    above: int
    total: int
    interval: tuple[float, float] | None
    is_default: bool = False
    never_run: int = 0

    @property
    def exit_code(self) -> int:
        """0 within, or a whole run without a gate; 1 leak; 3 inconclusive."""
        if self.is_default and self.status == "leak":
            return EXIT_CODES["inconclusive" if self.never_run else "within"]
        return EXIT_CODES[self.status]


def gate(
    cells: Sequence[CellRecord],
    threshold: float,
    *,
    self_check: SelfCheck | None = None,
    never_run: int = 0,
    is_default: bool = False,
) -> Gate:
    """Decide whether what was rebuilt without a defence stays within `threshold` dB.

    A run of defended cells only is judged by those.

    Args:
        cells: the attacks that were run.
        threshold: PSNR in dB above which an image counts as leaked.
        self_check: the known-answer attack, where one was run.
        never_run: planned cells that did not run.
        is_default: whether nobody set the gate, which the line then says.
    """
    judged = cells_to_judge(cells)
    reason = why_inconclusive(cells, self_check=self_check, never_run=never_run)
    status: Outcome = "leak" if judged.above(threshold) else "inconclusive" if reason else "within"
    above, total = judged.exposed(threshold)
    interval = exact_interval(above, total) if total else None
    parts = [_count(judged, threshold), _share(above, interval)]
    chosen = _exceeding(judged, threshold)
    parts += ["no closer than without the update"] if chosen and chosen.psnr > threshold and not chosen.level else []
    parts += ["no gate was set; --fail-above sets one"] if is_default else []
    brackets = f" ({'; '.join(part for part in parts if part)})" if total else ""
    told = f"{reason}; so far " if status == "inconclusive" and total else reason if status == "inconclusive" else ""
    head = (_FINDINGS if is_default else _HEADS)[status]
    line = f"{head}: {told}{_compare(judged, threshold)}{brackets}"
    return Gate(status, threshold, line, judged.worst, above, total, interval, is_default, never_run)


def cells_to_judge(cells: Sequence[CellRecord]) -> Group:
    """What is judged: the cells without a defence; a run of defended cells only is judged by what it contains."""
    return group([cell for cell in cells if cell.defence == NO_DEFENCE] or cells)


def why_inconclusive(cells: Sequence[CellRecord], *, self_check: SelfCheck | None, never_run: int = 0) -> str:
    """The reason why an absence of leakage would mean nothing in this run; empty where it does mean something."""
    if self_check is not None and not self_check.passed:
        return "the self-check failed"
    if never_run:
        return f"{plural(never_run, 'planned cell')} never ran to the end"
    everything, judged = group(cells), cells_to_judge(cells)
    if everything.attackable == 0:
        return "no update could be attacked"
    if everything.is_trusted and judged.is_trusted:
        return ""
    chosen, scope = (everything, "") if not everything.is_trusted else (judged, " without defence")
    failed = Counter(
        "no score" if cell.status == OK else cell.status
        for cell in cells
        if cell.status not in NOT_ATTACKABLE and not is_evidence(cell) and (not scope or cell.defence == NO_DEFENCE)
    )
    ended = ", ".join(f"{count} {status}" for status, count in failed.most_common())
    if chosen.ok >= ENOUGH_OK * chosen.attackable:
        return f"no run of {', '.join(chosen.missing)}{scope} is evidence ({ended})"
    return f"only {chosen.ok} of {plural(chosen.attackable, 'attack')}{scope} gave evidence ({ended})"


def _exceeding(judged: Group, threshold: float) -> Example | None:
    """The example the line speaks of: the worst, unless that is within and another one is above."""
    worst = judged.worst
    if worst is None or worst.psnr > threshold or not judged.above(threshold):
        return worst
    return max(judged.examples, key=lambda example: example.psnr)


def _compare(judged: Group, threshold: float) -> str:
    chosen = _exceeding(judged, threshold)
    if chosen is None:
        return ""
    sign = ">" if chosen.psnr > threshold else "≤"
    # 20.04 dB must not be printed as 20.0 dB > 20 dB.
    close = f"{chosen.psnr:.1f}" == f"{threshold:.1f}" and chosen.psnr != threshold
    return f"{f'{chosen.psnr:.4g} dB' if close else decibel(chosen.psnr)} {sign} {threshold:g} dB"


def _count(judged: Group, threshold: float) -> str:
    total = plural(judged.exposed(threshold)[1], "private example")
    worst, chosen = judged.worst, _exceeding(judged, threshold)
    if worst is None or chosen is worst:
        return f"worst of {total}"
    return f"highest of {total}; the worst by grade, {decibel(worst.psnr)}, is below"


def _share(above: int, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return ""
    low, high = interval
    return f"{above or 'none'} above, 95 % interval {100 * low:.0f}–{100 * high:.0f} % of such examples"
