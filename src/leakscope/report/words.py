"""Sentences of the verdict, for readers who know neither attacks nor decibels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from leakscope.report.costs import drop_words
from leakscope.report.evidence import NO_DEFENCE, DefenceEvidence, Example, Group, group
from leakscope.report.grades import GRADES, RECOGNISABLE
from leakscope.report.schema import CellRecord, Score, SelfCheck
from leakscope.results import GUESS, PRIOR, PUBLIC
from leakscope.types import LocalTraining

_NAMED_CELLS = 5
# Statuses that the fit of a result decides: a reader needs its figures.
_DOUBTFUL = ("unexplained", "unfinished")

# What a null baseline is called in a sentence.
_NULLS = {
    GUESS: "a blind guess",
    PRIOR: "the same attack on another update",
    PUBLIC: "the nearest of many other pictures",
}

_CAN = (
    "learns no more about private images than is reached without it",
    "can rebuild faint hints of colour and brightness of private images",
    "can rebuild the coarse shapes of private images",
    "can rebuild recognisable private images",
    "can rebuild clearly visible private images",
    "can rebuild near copies of private images",
)


def decibel(value: float | None) -> str:
    """Format a PSNR: '34.1 dB', '∞ dB' for a perfect copy, '–' for none."""
    if value is None or math.isnan(value):
        return "–"
    return ("∞" if value > 0 else "−∞") + " dB" if math.isinf(value) else f"{value:.1f} dB"


def plural(count: int, noun: str) -> str:
    """Format '1 image', '2 images'."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def local_words(local: LocalTraining) -> str:
    """Say how a client trained before it shared its update."""
    usual = ("lr", "steps", "epochs", "batch_size")
    more = [_setting(name, value) for name, value in local.settings().items() if name not in usual]
    return ", ".join([f"{_amount(local)} of {local.batch_size}", f"rate {local.lr:g}", *more])


def _amount(local: LocalTraining) -> str:
    return plural(local.steps or 1, "local step") if local.epochs is None else plural(local.epochs, "local epoch")


def _setting(name: str, value: object) -> str:
    plain = name.replace("_", " ")
    if isinstance(value, bool):
        return plain
    return str(value) if name == "optimiser" else f"{plain} {value}"


def remarks(cell: CellRecord) -> list[str]:
    """What a reader of one line of results must know beside its numbers."""
    server = ["malicious server"] if cell.server == "malicious" else []
    rounds = [plural(cell.rounds, "round")] if cell.rounds > 1 else []
    found = _trained_psnr(cell)
    trained = [] if found is None else [f"worst {decibel(found)} against what was trained on"]
    read = [words] if (words := tokens_words(cell)) else []
    weak = [words] if cell.status in _DOUBTFUL and (words := fit_words(cell)) else []
    inside = [words.removeprefix("; ")] if (words := opened_words(group([cell]))) else []
    return [*([", ".join(server + rounds)] if server or rounds else []), *trained, *read, *weak, *inside]


def tokens_words(record: CellRecord) -> str:
    """How much of the worst text was found, how much of what was found is right, and what chance finds; "" for none."""
    recall, precision = (numbers_in(record.column(name)) for name in ("token_recall", "token_precision"))
    if not recall or not precision:
        return ""
    parts = [f"{100 * max(recall):.0f} % of the tokens of the worst text", f"precision {100 * max(precision):.0f} %"]
    targets = numbers_in(record.column("target_recall"))
    parts += [f"{100 * max(targets):.0f} % of the tokens to be predicted"] if targets else []
    chance = numbers_in(value for values in record.baselines.values() for value in values)
    parts += [f"as many drawn blindly {100 * max(chance):.0f} %"] if chance else []
    return ", ".join(parts)


def numbers_in(values: Iterable[Score]) -> list[float]:
    """The values that are numbers."""
    return [float(value) for value in values if value is not None]


def _trained_psnr(cell: CellRecord) -> float | None:
    """Of the worst example, the PSNR against what was trained on: not that of another example that came closer."""
    worst, values = group([cell]).worst, cell.trained_scores.get("psnr", [])
    if worst is None or worst.index >= len(values):
        return None
    value = values[worst.index]
    # JSON has no infinity: a perfect copy arrives without PSNR.
    return math.inf if value is None else float(value)


def fit_words(cell: CellRecord) -> str:
    """How much of an update its reconstruction explains, of the update that is explained least; empty if unknown."""
    known = [(fit.explained, fit) for fit in cell.fits if fit.explained is not None]
    if not known:
        return ""
    explained, fit = min(known, key=lambda pair: pair[0])
    parts = [f"explains {100 * explained:.0f} % of the update"]
    parts += [] if fit.unrelated is None else [f"an unrelated picture {100 * fit.unrelated:.0f} %"]
    parts += [] if fit.truth is None else [f"the true examples {100 * fit.truth:.0f} %"]
    return "; ".join([*parts, *([fit.diagnosis] if fit.diagnosis else [])])


def what_was_rebuilt(judged: Group) -> str:
    """Say what the worst example gave away, and by which attack."""
    worst = judged.worst
    if worst is None:
        return ""
    cell = worst.cell
    source = "a single update" if cell.local is None else f"one update of {_amount(cell.local)}"
    source = source if cell.rounds == 1 else f"the updates of {cell.rounds} rounds"
    who = "whoever receives it" if cell.server == "honest" else "a server that hands out a crafted model"
    under = "" if cell.defence == NO_DEFENCE else f" under {_defence(cell)}"
    return (
        f"From {source}{under}, {who} {_CAN[worst.level]}: the worst of "
        f"{plural(len(judged.examples), 'reconstruction')} reached {_scores(worst)} "
        f"({cell.attack} on {cell.model}, {cell.data}, scenario {cell.scenario})."
    )


def reach(judged: Group, threshold: float) -> str:
    """Say how many images exceed the threshold, and what a typical one reaches."""
    count, total = judged.above(threshold), len(judged.examples)
    share = f"{count:,} of {total:,} ({count / total:.0%})" if total else "0"
    plain = all(example.cell.defence == NO_DEFENCE for example in judged.examples)
    return (
        f"{share} {'undefended ' if plain else ''}reconstructions exceed the threshold of {threshold:g} dB; "
        f"the typical one (median) reaches {decibel(judged.median_psnr)}."
    )


def best_defence(rows: Sequence[DefenceEvidence]) -> str:
    """Name the defence that protects best against both attackers, and its price."""
    tested = [row for row in rows if row.name != NO_DEFENCE]
    if not tested:
        return "No defence was tested in this run."
    among = f"Of the {len(tested)} defences tested, " if len(tested) > 1 else "The only defence tested: "
    sealed = [row for row in tested if row.both.is_sealed]
    if sealed:
        said = opened_words(sealed[0].both)
        return (
            f"{among}{sealed[0].name} sealed every update, so the server had nothing to read{said}{_price(sealed[0])}."
        )
    measured = [row for row in tested if row.is_recommendable]
    if not measured:
        return (
            f"{among}none has been shown to protect against an attacker who knows it is there "
            "(not tested, attacks failed, or training diverged or learnt nothing)."
        )
    best = min(measured, key=lambda row: row.rank)
    level = best.both.worst.level if best.both.worst else 0
    outcome = f"worst image {decibel(best.both.worst_psnr)}, grade {best.grade} ({GRADES[level].meaning})"
    if level >= RECOGNISABLE:
        return f"{among}none is enough: even the best, {best.name}, still gives away {outcome}{_price(best)}."
    return f"{among}{best.name} protects best, even against an attacker who knows it: {outcome}{_price(best)}."


def highest_opened(both: Group, viewer: str) -> float:
    """The highest PSNR that a viewer of opened updates reached; −∞ if none."""
    mine = [one.scores.get("psnr", []) for one in both.opened if one.viewer == viewer]
    # JSON has no infinity: a perfect copy arrives without PSNR.
    return max((math.inf if value is None else float(value) for values in mine for value in values), default=-math.inf)


def opened_words(both: Group) -> str:
    """What is got of sealed updates by those who can open them, the highest PSNR of each; empty if not measured."""
    reached = {one.viewer: highest_opened(both, one.viewer) for one in both.opened}
    told = [f"{viewer} gets {decibel(psnr)}" for viewer, psnr in reached.items() if psnr > -math.inf]
    return f"; {', '.join(told)}" if told else ""


def broken_by_knowledge(rows: Sequence[DefenceEvidence]) -> str:
    """Name the defence whose protection drops most once the attacker knows it."""
    drops = [
        (knowing.level - unaware.level, knowing.psnr - unaware.psnr, row, unaware, knowing)
        for row in rows
        if row.name != NO_DEFENCE and (unaware := row.naive.worst) and (knowing := row.adaptive.worst)
    ]
    broken = [drop for drop in drops if drop[0] > 0 and drop[4].level >= RECOGNISABLE]
    if not broken:
        return ""
    _, _, row, unaware, knowing = max(broken, key=lambda drop: drop[:2])
    return (
        f"Do not rely on {row.name} alone: an attacker unaware of it gets {decibel(unaware.psnr)} "
        f"(grade {unaware.grade}), but one who knows it still gets {decibel(knowing.psnr)} (grade {knowing.grade})."
    )


def self_check_words(check: SelfCheck | None, everything: Group) -> str:
    """Say why the figures can be trusted."""
    finished = f"{everything.ok:,} of {plural(everything.attackable, 'attack')} ended with a usable result"
    if check is None:
        return f"{finished}; no self-check was recorded."
    return f"{finished}, and the self-check recovered a planted image at {decibel(check.psnr)}."


def failures(cells: Sequence[CellRecord]) -> str:
    """List the cells that failed: how many of each kind, the first few by name, and how many leak all the same."""
    if not cells:
        return ""
    kinds = Counter("no score" if cell.status == "ok" else cell.status for cell in cells)
    named = [
        f"{cell.attack} against {_defence(cell)} (seed {cell.seed}: {cell.status})" for cell in cells[:_NAMED_CELLS]
    ]
    more = f" and {len(cells) - _NAMED_CELLS} more" if len(cells) > _NAMED_CELLS else ""
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    leaks = sum(bool((worst := group([cell]).worst) and worst.level >= RECOGNISABLE) for cell in cells)
    # What was rebuilt is proof of a leak, whatever became of the attack.
    proof = f" {leaks} of them rebuilt a recognisable image all the same: that leak is counted." if leaks else ""
    return f"No proof of safety: {counted}. These are {'; '.join(named)}{more}.{proof}"


def _scores(example: Example) -> str:
    parts = [decibel(example.psnr)]
    if example.ssim is not None:
        parts.append(f"SSIM {example.ssim:.2f}")
    if example.gain is not None:
        direction = "closer than" if example.gain >= 0 else "further off than"
        parts.append(f"{decibel(abs(example.gain))} {direction} {_NULLS.get(example.best_null, example.best_null)}")
    return ", ".join(parts)


def _defence(cell: CellRecord) -> str:
    if cell.defence == NO_DEFENCE:
        return "no defence"
    return f"{cell.defence}, known to the attacker" if cell.adaptive else cell.defence


def _price(row: DefenceEvidence) -> str:
    if row.at_chance:
        return "; with it the network is no better than chance"
    if row.accuracy_drop is None:
        return "; its cost in accuracy was not measured"
    if row.accuracy_drop < 0.0005 and row.drop_interval is None:
        return "; it costs no accuracy"
    return f"; it costs {drop_words(row.accuracy_drop, row.drop_interval)}"
