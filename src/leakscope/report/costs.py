"""What a defence costs, in words: accuracy with its interval, or that it is no better than guessing."""

from __future__ import annotations

from leakscope.report.evidence import NO_DEFENCE
from leakscope.report.schema import DefenceCost


def chance_words(cost: DefenceCost) -> str:
    """Say that an accuracy is that of guessing; empty where it is better."""
    if not cost.at_chance or cost.accuracy is None:
        return ""
    among = "" if cost.classes is None else f" among {cost.classes} classes"
    level = "" if cost.chance is None else f" ({100 * cost.chance:.0f} %)"
    return f"{100 * cost.accuracy:.1f} % is what guessing{among} gets{level}"


def drop_words(drop: float, interval: tuple[float, float] | None) -> str:
    """Points of accuracy that a defence costs, and whether the run can tell them from none at all.

    Forty test pictures and one seed leave ten points open: without its interval such a figure would mislead.
    """
    told = f"{100 * drop:.1f} points of accuracy"
    if interval is None:
        return told
    low, high = interval
    doubt = ", not told apart from none" if low <= 0 <= high else ""
    return f"{told} ({100 * low:.1f} to {100 * high:.1f} at 95 %{doubt})"


def accuracy_words(cost: DefenceCost) -> str:
    """The accuracy with interval and seeds, and the change by the defence where the network learnt anything."""
    if cost.accuracy is None:
        return "not measured"
    told = f"{100 * cost.accuracy:.1f} %"
    if cost.ci is not None and len(cost.ci) == 2 and None not in cost.ci:
        told += f" [{100 * (cost.ci[0] or 0):.1f}, {100 * (cost.ci[1] or 0):.1f}]"
    if len(cost.accuracies) > 1:
        told += f" over {len(cost.accuracies)} seeds"
    if cost.diverged:
        return f"{told}; training diverged"
    if chance := chance_words(cost):
        return f"{told}; {chance}"
    if cost.name == NO_DEFENCE or cost.accuracy_drop is None:
        return told
    return f"{told} ({0.0 - 100 * cost.accuracy_drop:+.1f} points)"
