"""One check per cell, and one for the gate: what machines of a build are told of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from leakscope.report.evidence import NO_DEFENCE, NOT_ATTACKABLE, group, is_evidence
from leakscope.report.gate import cells_to_judge, gate
from leakscope.report.schema import CellRecord, Summary
from leakscope.report.words import decibel
from leakscope.text import printable

# Status of a cell that was planned and did not run.
NOT_RUN = "not-run"
Ending = Literal["passed", "leak", "no-evidence", "skipped"]
_GATE_ENDINGS: dict[str, Ending] = {"leak": "leak", "within": "passed"}


@dataclass(frozen=True)
class Check:
    """How one cell, or the gate, ended: `leak` is above the gate and counts, `no-evidence` permits nothing.

    `key` is that of the cell, empty for the gate; `psnr` is the highest of the cell. `is_judged` is False for a cell
    with a defence, where the gate judges those without one.
    """

    group: str
    name: str
    ending: Ending
    status: str
    text: str
    key: str = ""
    seconds: float = 0.0
    psnr: float | None = None
    is_judged: bool = True


def list_checks(summary: Summary) -> list[Check]:
    """The gate first, then every cell in the order of the run; the gate fails if and only if the exit code is 1."""
    threshold = summary.threshold_psnr
    judged = {cell.key for cell in summary.cells if cell.defence == NO_DEFENCE} or {cell.key for cell in summary.cells}
    cells = [_check_cell(summary, cell, threshold, is_judged=cell.key in judged) for cell in summary.cells]
    return [_check_gate(summary), *cells]


def _check_gate(summary: Summary) -> Check:
    told = summary.verdict
    if told is None or told.exit_code is None:
        # Written by a version that kept no gate.
        never_run = sum(cell.status == NOT_RUN for cell in summary.cells)
        found = gate(
            summary.cells, summary.threshold_psnr, self_check=summary.self_check, never_run=never_run, is_default=False
        )
        status, line = str(found.status), found.line
    else:
        status = {0: "within", 1: "leak"}.get(told.exit_code, "inconclusive")
        line = told.line or told.headline
    worst = cells_to_judge(summary.cells).worst
    psnr = None if worst is None else worst.psnr
    ending = _GATE_ENDINGS.get(status, "no-evidence")
    return Check("leakscope", "gate", ending, status, printable(line), psnr=psnr)


def _check_cell(summary: Summary, cell: CellRecord, threshold: float, *, is_judged: bool) -> Check:
    found = group([cell])
    psnr = max((example.psnr for example in found.examples), default=None)
    leaks = found.above(threshold) > 0
    knowing = " knowing it" if cell.adaptive else ""
    ending: Ending
    if leaks and is_judged:
        ending = "leak"
    elif cell.status in NOT_ATTACKABLE or cell.status == NOT_RUN:
        ending = "skipped"
    else:
        ending = "passed" if is_evidence(cell) else "no-evidence"
    return Check(
        group=printable(f"{cell.model} on {cell.data}"),
        name=printable(f"{cell.attack} against {cell.defence}{knowing}, scenario {cell.scenario}, seed {cell.seed}"),
        ending=ending,
        status=cell.status,
        text=printable(_explain(cell, psnr, threshold, leaks=leaks)),
        key=cell.key,
        seconds=summary.timings.get(cell.key) or 0.0,
        psnr=psnr,
        is_judged=is_judged,
    )


def _explain(cell: CellRecord, psnr: float | None, threshold: float, *, leaks: bool) -> str:
    if cell.error:
        return cell.error
    if psnr is None:
        return f"no score ({cell.status})"
    compared = f"{decibel(psnr)} {'>' if leaks else '≤'} {threshold:g} dB"
    return compared if cell.status == "ok" else f"{cell.status}: {compared}"
