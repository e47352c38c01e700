"""What to do: the cheapest defence that was shown to be enough, and why the others are not named.

Enough means: no example came back above the gate, neither to the attacker unaware of the defence nor to the one who
knows it, in every setting that leaks without it; the attacks gave evidence; and the network still learns. A broken
attack recommends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from leakscope.report.evidence import NO_DEFENCE, DefenceEvidence, by_defence, group, is_evidence
from leakscope.report.gate import cells_to_judge, gate
from leakscope.report.schema import CellRecord, DefenceCost, Summary
from leakscope.report.words import decibel, plural

Setting = tuple[object, ...]


@dataclass(frozen=True)
class Option:
    """One defence: whether it is enough, why not if it is not, and the highest of its costs over all networks."""

    name: str
    enough: bool
    why: str
    accuracy_drop: float | None
    time_ratio: float | None
    upload_ratio: float | None
    note: str

    @property
    def price(self) -> tuple[float, float, float]:
        """Sort key: accuracy lost in tenths of points, then time, then traffic; what was not measured is dear."""
        drop = math.inf if self.accuracy_drop is None else max(0.0, round(1000 * self.accuracy_drop))
        time = math.inf if self.time_ratio is None else self.time_ratio
        return drop, time, math.inf if self.upload_ratio is None else self.upload_ratio


@dataclass(frozen=True)
class Advice:
    """One sentence, and every defence with its reason, those that are enough first and the cheapest first."""

    headline: str
    options: tuple[Option, ...]
    chosen: Option | None = None
    notes: tuple[str, ...] = ()


def advise(summary: Summary) -> Advice:
    """Say what to do about what a run found."""
    cells, costs = summary.cells, summary.defences
    rows = [row for row in by_defence(cells, costs) if row.name != NO_DEFENCE]
    leaking = _leaking(cells, summary.threshold_psnr)
    options = sorted(
        (_option(row, leaking=leaking, summary=summary) for row in rows),
        key=lambda option: (not option.enough, option.price),
    )
    chosen = options[0] if options and options[0].enough else None
    headline, chosen = _headline(summary, chosen, tested=len(options), leaks=bool(leaking))
    return Advice(headline, tuple(options), chosen, tuple(_notes(costs)))


def setting(cell: CellRecord) -> Setting:
    """What a defence must have been tried in to be recommended for it."""
    return cell.model, cell.data, cell.scenario, cell.batch_size, str(cell.local)


def chance_words(cost: DefenceCost) -> str:
    """Say that an accuracy is that of guessing; empty where it is better."""
    if not cost.at_chance or cost.accuracy is None:
        return ""
    among = "" if cost.classes is None else f" among {cost.classes} classes"
    level = "" if cost.chance is None else f" ({100 * cost.chance:.0f} %)"
    return f"{100 * cost.accuracy:.1f} % is what guessing{among} gets{level}"


def _leaking(cells: Sequence[CellRecord], threshold: float) -> dict[Setting, CellRecord]:
    """The settings in which something came back above the gate without a defence, with a cell that shows it."""
    found: dict[Setting, CellRecord] = {}
    for cell in cells:
        if cell.defence == NO_DEFENCE and group([cell]).above(threshold):
            found.setdefault(setting(cell), cell)
    return found


def _option(row: DefenceEvidence, *, leaking: dict[Setting, CellRecord], summary: Summary) -> Option:
    paid = [cost for cost in summary.defences if cost.name == row.name]
    why = _why_not(row, leaking=leaking, summary=summary)
    told = f"worst {decibel(row.both.worst_psnr)}, grade {row.grade}" if row.both.worst else "sealed: nothing to read"
    return Option(
        name=row.name,
        enough=not why,
        why=why or told,
        accuracy_drop=row.accuracy_drop,
        time_ratio=max((cost.step_time_ratio for cost in paid if cost.step_time_ratio is not None), default=None),
        upload_ratio=max((cost.upload_ratio for cost in paid if cost.upload_ratio is not None), default=None),
        note="; ".join(dict.fromkeys(filter(None, map(chance_words, paid)))),
    )


def _why_not(row: DefenceEvidence, *, leaking: dict[Setting, CellRecord], summary: Summary) -> str:
    """Why a defence cannot be recommended; empty where it can."""
    threshold = summary.threshold_psnr
    for who, mine in (("one who knows it", row.adaptive), ("an attacker unaware of it", row.naive)):
        if mine.above(threshold):
            highest = max(example.psnr for example in mine.examples)
            return f"{who} still gets {decibel(highest)}, above the gate of {threshold:g} dB"
    if row.training_diverged:
        return "training diverged with it"
    if row.at_chance:
        return "with it the network is no better than chance"
    if row.both.is_sealed:
        return ""
    if not row.adaptive.statuses:
        return "not tested against an attacker who knows it"
    if not row.both.is_trusted or not row.adaptive.is_trusted:
        return f"only {row.both.ok} of {plural(row.both.attackable, 'attack')} on it gave evidence"
    return _uncovered(row.name, leaking=leaking, cells=summary.cells)


def _uncovered(name: str, *, leaking: dict[Setting, CellRecord], cells: Sequence[CellRecord]) -> str:
    shown = {setting(cell) for cell in cells if cell.defence == name and cell.adaptive and is_evidence(cell)}
    missing = [cell for key, cell in leaking.items() if key not in shown]
    if not missing:
        return ""
    first = missing[0]
    return f"no evidence from an attacker who knows it for {first.model} on {first.data}, which leaks without a defence"


def _headline(summary: Summary, chosen: Option | None, *, tested: int, leaks: bool) -> tuple[str, Option | None]:
    threshold = f"{summary.threshold_psnr:g} dB"
    decided = gate(summary.cells, summary.threshold_psnr, self_check=summary.self_check)
    if summary.self_check is not None and not summary.self_check.passed:
        return "Repair the installation first: the self-check failed, so this run recommends nothing.", None
    if any(cell.column("token_recall") for cell in summary.cells):
        return (
            "Tokens were looked for in the embedding's rows, and no defence is recommended for them here. Leave the "
            "embedding out of what is shared, or attack updates under a defence and compare the recall."
        ), None
    if not any(cell.column("psnr") for cell in summary.cells) and any(cell.status == "ok" for cell in summary.cells):
        return "Nothing was graded. Give the true examples to see whether these updates need a defence.", None
    if not leaks and not cells_to_judge(summary.cells).above(summary.threshold_psnr):
        if decided.status == "inconclusive":
            return "Run the attacks that gave no evidence again before choosing a defence.", None
        return f"Nothing came back above {threshold} without a defence; against these attackers none is needed.", None
    if not tested:
        return "Updates leak and no defence was tested. Run the audit again with --defence.", None
    if chosen is None:
        return (
            f"None of the {plural(tested, 'defence')} tested is sufficient. Test stronger settings or others, "
            "or do not share these updates."
            if tested > 1
            else "The only defence tested is not sufficient. Test stronger settings or others, or do not share updates."
        ), None
    return f"Switch on {chosen.name}: the cheapest of those tested that keep every example below {threshold}.", chosen


def _notes(costs: Sequence[DefenceCost]) -> list[str]:
    """What makes the costs themselves worth little."""
    plain = [cost for cost in costs if cost.name == NO_DEFENCE and cost.at_chance]
    return [
        f"Without a defence {cost.model} on {cost.data} learnt nothing in this run: {chance_words(cost)}. "
        "What a defence costs in accuracy cannot be seen there."
        for cost in plain
    ]
