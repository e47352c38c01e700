"""What a report must say when a budget made attackers weaker than they are."""

from __future__ import annotations

from typing import Any

from leakscope.campaign.config import Config, PlannedAttack
from leakscope.campaign.durations import duration
from leakscope.campaign.plan import Plan

_NAMED = 20


def budget_record(config: Config, *, unfinished: int) -> dict[str, Any] | None:
    """The budget in `summary.json`: seconds, lengths of attacks, cells without a result."""
    if config.budget is None and config.planned is None:
        return None
    planned = config.model_dump(mode="json")["planned"] or {"attacks": {}, "left_out": []}
    return {
        "seconds": config.budget, **planned, "shortened": sorted(_shortened(config)), "unfinished": unfinished,
        "caution": _sentences(config, unfinished=unfinished),
    }  # fmt: skip


def cautioned(verdict: dict[str, Any], config: Config, *, unfinished: int) -> dict[str, Any]:
    """The verdict, with what the budget takes from its weight."""
    return {**verdict, "sentences": [*verdict["sentences"], *_sentences(config, unfinished=unfinished)]}


def limit_words(limit: dict[str, Any]) -> str:
    """The note of a cell whose attack does not run as its own settings say."""
    length = PlannedAttack.model_validate(limit)
    starts = "" if length.restarts is None else f", {length.restarts} start{'s' if length.restarts > 1 else ''}"
    return f"length set by the budget: {length.steps} of {length.of} steps{starts}"


def left_out_words(plan: Plan) -> list[str]:
    """The cells there was no time for, as a reader of the report should know them."""
    labels = [cell.label for cell in plan.left_out]
    more = [f"… and {len(labels) - _NAMED} more cells."] if len(labels) > _NAMED else []
    return [f"Not run, for lack of time: {label}." for label in labels[:_NAMED]] + more


def _shortened(config: Config) -> dict[str, PlannedAttack]:
    attacks = config.planned.attacks if config.planned else {}
    return {spec: length for spec, length in attacks.items() if length.steps < length.of}


def _sentences(config: Config, *, unfinished: int) -> list[str]:
    limit = "The run's plan" if config.budget is None else f"The budget of {duration(config.budget)}"
    found = []
    if short := _shortened(config):
        named = ", ".join(f"{spec} ({length.steps} of {length.of} steps)" for spec, length in short.items())
        found.append(
            f"{limit} shortened {named}. A shortened attack is a weaker attacker: what it could not rebuild may "
            "still leak, and a grade or a “within” holds for these attackers only."
        )
    left_out = len(config.planned.left_out) if config.planned else 0
    if left_out:
        cells = "1 cell" if left_out == 1 else f"{left_out} cells"
        found.append(f"{limit} had no time for {cells}; see what was not tested.")
    if unfinished:
        cells = "1 planned cell" if unfinished == 1 else f"{unfinished} planned cells"
        found.append(f"{limit} was over before {cells} could run; the same command continues.")
    return found
