"""Sealed updates as those see them who can open them: each client's alone, and the total of all clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from leakscope.errors import KnowledgeError, UnsuitableError
from leakscope.report.grades import find_worst
from leakscope.results import COLLUDING, TOTAL, AuditResult, Status


class Look(Protocol):
    """The same attack on updates that were opened."""

    def __call__(self, *, pooled: bool) -> AuditResult:
        """What it came to; `pooled` where only the mean of all clients is seen."""
        ...


def look_inside(result: AuditResult, look: Look, *, clients: int) -> AuditResult:
    """The result of a sealed cell with what others than the server get, in `also` and in words."""
    views = [(TOTAL, True)] if clients > 1 else []
    also, notes = [], []
    for viewer, pooled in [*views, (COLLUDING, False)]:
        try:
            found = look(pooled=pooled)
        except (KnowledgeError, UnsuitableError) as refusal:
            found = replace(result, status=Status.REFUSED, notes=(str(refusal),))
        also.append(replace(found, defence=result.defence, viewer=viewer))
        notes.append(_words(also[-1], clients))
    return replace(result, also=tuple(also), notes=(*result.notes, *notes))


def _words(found: AuditResult, clients: int) -> str:
    of = f" of {clients} clients" if found.viewer == TOTAL else ""
    begin = f"sealed for the server; {found.viewer}{of}:"
    if found.scores is None:
        return f"{begin} {found.status}{f' ({found.notes[0]})' if found.notes else ''}"
    if "psnr" not in found.scores.metrics:
        return f"{begin} {found.status}, {100 * float(found.scores.leading.max()):.0f} % of the tokens"
    ssim = found.scores.metrics.get("ssim")
    baseline = None if found.baseline_psnr is None else found.baseline_psnr.tolist()
    psnr = found.scores.psnr.tolist()
    place = find_worst(psnr, ssim=None if ssim is None else ssim.tolist(), baseline=baseline) or 0
    beside = "" if baseline is None else f" ({baseline[place]:.1f} dB without any update)"
    return f"{begin} {found.status}, {psnr[place]:.1f} dB at worst{beside}"
