"""What to do: the cheapest defence that was shown to be enough, and why the others are not named.

Enough means: no example came back above the gate, neither to the attacker unaware of the defence nor to the one who
knows it, in every setting that leaks without it; every attack that leaked there gave evidence against it; and the
network still learns. An attack that broke down, or never ran, recommends nothing: it leaves a defence inconclusive.

Cheapest means: least accuracy lost, to a tenth of a point; then the time of a client step, to a tenth; then the bytes
sent, to a hundredth. Of equally cheap ones the one that leaks least is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from leakscope.report.costs import chance_words, drop_words
from leakscope.report.evidence import (
    NO_DEFENCE,
    NOT_ATTACKABLE,
    DefenceEvidence,
    Example,
    Group,
    by_defence,
    group,
    is_evidence,
)
from leakscope.report.gate import cells_to_judge, gate
from leakscope.report.nouns import noun_of
from leakscope.report.schema import CellRecord, DefenceCost, Summary
from leakscope.report.words import decibel, highest_opened, opened_words, plural
from leakscope.results import TOTAL

Setting = tuple[object, ...]
Sufficient = Literal["yes", "no", "inconclusive"]
_NAMED = 5


@dataclass(frozen=True)
class Option:
    """One defence: whether it is enough, why not if it is not, and the highest of its costs over all networks.

    `worst` is the worst example by the one order of the whole report, whoever attacked it.
    """

    name: str
    sufficient: Sufficient
    why: str
    accuracy_drop: float | None
    time_ratio: float | None
    upload_ratio: float | None
    note: str
    worst: Example | None = None
    drop_interval: tuple[float, float] | None = None

    @property
    def accuracy_words(self) -> str:
        """Points of accuracy it costs, with their interval; empty where they were not measured."""
        return "" if self.accuracy_drop is None else drop_words(self.accuracy_drop, self.drop_interval)

    def is_as_accurate_as(self, other: Option) -> bool:
        """Whether the run cannot tell the accuracies of both apart: their intervals overlap."""
        if self.drop_interval is None or other.drop_interval is None:
            return False
        return self.drop_interval[0] <= other.drop_interval[1] and other.drop_interval[0] <= self.drop_interval[1]

    @property
    def enough(self) -> bool:
        """Whether it was shown to be enough."""
        return self.sufficient == "yes"

    @property
    def price(self) -> tuple[float, float, float]:
        """Accuracy lost in tenths of points, then time, then traffic; what was not measured is dear.

        Rounded, since a difference that the next run turns round must not decide.
        """
        drop = math.inf if self.accuracy_drop is None else max(0.0, round(1000 * self.accuracy_drop))
        time = math.inf if self.time_ratio is None else round(self.time_ratio, 1)
        return drop, time, math.inf if self.upload_ratio is None else round(self.upload_ratio, 2)

    @property
    def rank(self) -> tuple[object, ...]:
        """Sort key: sufficient ones first, then inconclusive ones; by price; then by what leaks, then by name."""
        leak = self.worst.psnr if self.worst else -math.inf
        return ("yes", "inconclusive", "no").index(self.sufficient), self.price, leak, self.name


@dataclass(frozen=True)
class Advice:
    """What to do in a sentence, what it costs, and every defence with its reason in the order of `Option.rank`."""

    headline: str
    options: tuple[Option, ...]
    chosen: Option | None = None
    notes: tuple[str, ...] = ()
    detail: str = ""

    @property
    def words(self) -> str:
        """Headline and detail."""
        return " ".join(filter(None, (self.headline, self.detail)))


def advise(summary: Summary) -> Advice:
    """Say what to do about what a run found."""
    cells, costs = summary.cells, summary.defences
    rows = [row for row in by_defence(cells, costs) if row.name != NO_DEFENCE]
    leaking = _leaking(cells, summary.threshold_psnr)
    options = sorted((_option(row, leaking=leaking, summary=summary) for row in rows), key=lambda option: option.rank)
    chosen = options[0] if options and options[0].enough else None
    headline, chosen = _headline(summary, chosen, options=options, leaks=bool(leaking))
    detail = "" if chosen is None else _detail(chosen, options, noun=noun_of(cells))
    return Advice(headline, tuple(options), chosen, tuple(_notes(costs)), detail)


def setting(cell: CellRecord) -> Setting:
    """What a defence must have been tried in to be recommended for it."""
    return cell.model, cell.data, cell.scenario, cell.batch_size, str(cell.local)


def _leaking(cells: Sequence[CellRecord], threshold: float) -> dict[Setting, list[CellRecord]]:
    """The settings in which something came back above the gate without a defence, with the cells that show it."""
    found: dict[Setting, list[CellRecord]] = {}
    for cell in cells:
        if cell.defence == NO_DEFENCE and group([cell]).above(threshold):
            found.setdefault(setting(cell), []).append(cell)
    return found


def _option(row: DefenceEvidence, *, leaking: dict[Setting, list[CellRecord]], summary: Summary) -> Option:
    paid = [cost for cost in summary.defences if cost.name == row.name]
    sufficient, why = _judge(row, leaking=leaking, summary=summary)
    nothing = f"sealed: nothing to read{opened_words(row.both)}"
    told = f"worst {decibel(row.both.worst_psnr)}, grade {row.grade}" if row.both.worst else nothing
    return Option(
        name=row.name,
        sufficient=sufficient,
        why=why or told,
        accuracy_drop=row.accuracy_drop,
        time_ratio=max((cost.step_time_ratio for cost in paid if cost.step_time_ratio is not None), default=None),
        upload_ratio=max((cost.upload_ratio for cost in paid if cost.upload_ratio is not None), default=None),
        note="; ".join(dict.fromkeys(filter(None, map(chance_words, paid)))),
        worst=row.both.worst,
        drop_interval=row.drop_interval,
    )


def _judge(
    row: DefenceEvidence, *, leaking: dict[Setting, list[CellRecord]], summary: Summary
) -> tuple[Sufficient, str]:
    """Whether a defence is enough, and why it cannot be recommended where it cannot."""
    threshold = summary.threshold_psnr
    for who, mine in (("one who knows it", row.adaptive), ("an attacker unaware of it", row.naive)):
        if mine.above(threshold):
            return "no", f"{who} still gets {decibel(_above(mine, threshold))}, above the gate of {threshold:g} dB"
    if row.training_diverged:
        return "no", "training diverged with it"
    if row.at_chance:
        return "no", "with it the network is no better than chance"
    if row.both.is_sealed:
        # Whoever holds the key opens the total as a matter of course: that the server cannot is not enough then.
        total = highest_opened(row.both, TOTAL)
        leaks = f"{TOTAL} still gets {decibel(total)}, above the gate of {threshold:g} dB"
        return ("no", leaks) if total > threshold else ("yes", "")
    if not row.adaptive.statuses:
        return "inconclusive", "not tested against an attacker who knows it"
    if not row.both.is_trusted or not row.adaptive.is_trusted:
        return "inconclusive", f"only {row.both.ok} of {plural(row.both.attackable, 'attack')} on it gave evidence"
    why = _uncovered(row.name, leaking=leaking, cells=summary.cells)
    return "inconclusive" if why else "yes", why


def _above(mine: Group, threshold: float) -> float:
    """PSNR of the worst example; of the highest one where the worst, by grade and gain, is not above the gate."""
    if mine.worst is not None and mine.worst.psnr > threshold:
        return mine.worst.psnr
    return max(example.psnr for example in mine.examples)


def _uncovered(name: str, *, leaking: dict[Setting, list[CellRecord]], cells: Sequence[CellRecord]) -> str:
    """Where something leaks without a defence, which of the attacks that show it says nothing of this one."""
    knowing = [cell for cell in cells if cell.defence == name and cell.adaptive]
    for key, leaks in leaking.items():
        here = [cell for cell in knowing if setting(cell) == key]
        first, where = leaks[0], "which leaks without a defence"
        if not any(map(is_evidence, here)):
            return f"no evidence from an attacker who knows it for {first.model} on {first.data}, {where}"
        for attack in dict.fromkeys(cell.attack for cell in leaks):
            tried = [cell for cell in here if cell.attack == attack]
            # One that cannot be run under the defence at all was refused, and is no open question.
            attackable = [cell for cell in tried if cell.status not in NOT_ATTACKABLE]
            if not tried or (attackable and not any(map(is_evidence, attackable))):
                return f"no evidence from {attack} that knows it for {first.model} on {first.data}, {where}"
    return ""


def _headline(
    summary: Summary, chosen: Option | None, *, options: Sequence[Option], leaks: bool
) -> tuple[str, Option | None]:
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
    if not options:
        return "Updates leak and no defence was tested. Run the audit again with --defence.", None
    if chosen is None:
        return _none_suffices(options), None
    if chosen.accuracy_drop is None:
        return (
            f"Switch on {chosen.name}: it keeps every example below {threshold}; its accuracy was not measured.",
            chosen,
        )
    return f"Switch on {chosen.name}: the cheapest of those tested that keep every example below {threshold}.", chosen


def _none_suffices(options: Sequence[Option]) -> str:
    open_ones = [option.name for option in options if option.sufficient == "inconclusive"]
    if open_ones:
        more = f" and {len(open_ones) - _NAMED} more" if len(open_ones) > _NAMED else ""
        rest = ", and no other is sufficient" if len(open_ones) < len(options) else ""
        return (
            f"No defence can be recommended: inconclusive for {', '.join(open_ones[:_NAMED])}{more}{rest}. "
            "Run what gave no evidence again, with an attacker who knows the defence."
        )
    if len(options) == 1:
        return "The only defence tested is not sufficient. Test stronger settings or others, or do not share updates."
    return (
        f"None of the {plural(len(options), 'defence')} tested is sufficient. Test stronger settings or others, "
        "or do not share these updates."
    )


def _detail(chosen: Option, options: Sequence[Option], *, noun: str) -> str:
    """What the chosen defence costs and leaks, and which others might have been chosen."""
    costs = [
        chosen.accuracy_words,
        "" if chosen.time_ratio is None else f"{chosen.time_ratio:.1f} × the time of a client step",
        "" if chosen.upload_ratio is None else f"{chosen.upload_ratio:.2f} × the upload",
    ]
    found = [f"It costs {', '.join(filter(None, costs))}."] if any(costs) else []
    if example := chosen.worst:
        who = "knowing it" if example.cell.adaptive else "unaware of it"
        found.append(f"The worst {noun} came back at {decibel(example.psnr)}, by {example.cell.attack} {who}.")
    equal = [option.name for option in options if option.enough and option != chosen and option.price == chosen.price]
    if equal:
        found.append(f"Equally cheap, and leaking no less: {', '.join(equal[:_NAMED])}.")
    alike = [
        option.name
        for option in options
        if option.enough and option != chosen and option.name not in equal and option.is_as_accurate_as(chosen)
    ]
    if alike:
        found.append(f"In accuracy this run cannot tell it apart from: {', '.join(alike[:_NAMED])}.")
    cheaper = [option.name for option in options if option.sufficient == "inconclusive" and option.price < chosen.price]
    if cheaper:
        found.append(f"Cheaper, but inconclusive: {', '.join(cheaper[:_NAMED])}.")
    return " ".join(found)


def _notes(costs: Sequence[DefenceCost]) -> list[str]:
    """What makes the costs themselves worth little."""
    plain = [cost for cost in costs if cost.name == NO_DEFENCE and cost.at_chance]
    return [
        f"Without a defence {cost.model} on {cost.data} learnt nothing in this run: {chance_words(cost)}. "
        "What a defence costs in accuracy cannot be seen there."
        for cost in plain
    ]
