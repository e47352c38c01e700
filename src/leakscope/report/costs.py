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
