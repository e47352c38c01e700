"""All numbers of an audit in one document, with the verdict."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from leakscope.attack import Attack
from leakscope.audits.config import Config, PlannedAttack
from leakscope.audits.durations import duration
from leakscope.audits.findings import borrow_priors
from leakscope.audits.grid import strong_attacks
from leakscope.audits.plan import Plan
from leakscope.audits.specs import NONE, AttackCellSpec, TrainingCellSpec
from leakscope.federated.utility import difference_interval
from leakscope.observation.scenario import get_scenario
from leakscope.registry import ATTACKS, DEFENCES, attack_from_spec, parse_spec, split_chain
from leakscope.report import CellRecord, DefenceCost, SelfCheck, Summary, Verdict, verdict
from leakscope.report.checks import NOT_RUN
from leakscope.report.schema import AttackFindings, Budget, Counts, ScenarioText, TrainingFindings
from leakscope.runner import CellOutcome, SweepResult
from leakscope.types import Status
from leakscope.version import __version__

_NAMED = 20
# What a record repeats of what the cell was told.
_WHICH = ("attack", "defence", "adaptive", "scenario", "seed", "local", "victims", "batch_size", "limit")


def summarise_audit(config: Config, plan: Plan, sweep: SweepResult, check: SelfCheck, *, command: str) -> Summary:
    """Build the summary; apart from `timings` it depends on configuration and code alone."""
    ended = {cell.key: outcome for cell, outcome in zip(plan.cells, sweep.outcomes, strict=True)}
    records = [_record(cell, ended[cell.key], config, sweep=sweep) for cell in plan.attacks]
    records = borrow_priors(plan.attacks, records)
    costs = _costs(plan.trainings, ended)
    unfinished = sum(outcome is None for outcome in ended.values()) if sweep.out_of_time else 0
    missing = sum(ended[cell.key] is None for cell in plan.attacks)
    judged = verdict(
        records, config.gate, defences=costs, self_check=check, never_run=missing, is_default=not config.has_gate
    )
    extra = [*_strong_sentences(config), *_caution(config, unfinished=unfinished)]
    return Summary(
        schema=1,
        title=config.title,
        leakscope=__version__,
        command=command,
        config=config.model_dump(mode="json"),
        environment=_environment(),
        code={"version": __version__, "seeds": list(config.seeds)},
        self_check=check,
        threshold_psnr=config.gate,
        verdict=Verdict.model_validate(judged.model_dump() | {"sentences": [*judged.sentences, *extra]}),
        budget=_budget(config, unfinished=unfinished),
        scenarios={name: _scenario(name) for name in config.scenarios},
        cells=records,
        defences=costs,
        counts=_counts(records),
        not_tested=[*_left_out(plan), *plan.untrained, *_list_failed_trainings(plan, ended), *_not_tested(config)],
        reproduce=[command] if command else [],
        timings={key: None if outcome is None else outcome.seconds for key, outcome in ended.items()}
        | {name: value for cost in costs for name, value in cost.timings().items()},
    )


def _environment() -> dict[str, str | int]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "platform": f"{platform.system()} {platform.machine()}",
        "threads": 1,
    }


def _record(cell: AttackCellSpec, outcome: CellOutcome | None, config: Config, *, sweep: SweepResult) -> CellRecord:
    if outcome is None:
        status, findings = NOT_RUN, AttackFindings(error=sweep.explain_missing(cell.key))
    else:
        status, findings = outcome.status, AttackFindings.model_validate(outcome.record)
    which = {name: getattr(cell, name) for name in _WHICH}
    # A worker names the kind of an error and its message apart; a reader wants one line.
    told: dict[str, Any] = {
        "error": ": ".join(filter(None, (findings.error, findings.message))) or None,
        "notes": _notes(cell, config),
    }
    told["notes"] += findings.notes
    names = {"key": cell.key, "model": cell.subject.model, "data": cell.subject.data, "status": str(status)}
    # A cell that failed says nothing of the rounds it was asked for.
    told["rounds"] = max(cell.rounds or 1, findings.rounds)
    return CellRecord.model_validate(findings.model_dump() | which | names | told)


def _notes(cell: AttackCellSpec, config: Config) -> list[str]:
    """Why a cell is there that nobody asked for, and why its attack does not run as its own settings say."""
    found = [] if cell.attack in config.attacks else [f"also run because it is stronger under {cell.defence}"]
    if cell.limit is not None:
        starts = cell.limit.restarts
        often = "" if starts is None else f", {starts} start{'s' if starts > 1 else ''}"
        found.append(f"length set by the budget: {cell.limit.steps} of {cell.limit.of} steps{often}")
    return found


def _strong_sentences(config: Config) -> list[str]:
    named = {defence: strong_attacks(config, defence) for defence in dict.fromkeys(config.defences)}
    return [
        f"Also run because it is stronger under {defence}: {attack}."
        for defence, attacks in named.items()
        for attack in attacks
    ]


def _counts(records: Sequence[CellRecord]) -> Counts:
    statuses = Counter(record.status for record in records)
    failed = {status: count for status, count in sorted(statuses.items()) if status != "ok"}
    return Counts(total=len(records), ok=statuses.get("ok", 0), failed=failed)


def _costs(cells: Sequence[TrainingCellSpec], ended: dict[str, CellOutcome | None]) -> list[DefenceCost]:
    """What each defence costs beside the same training without one."""
    done = [(cell, outcome) for cell in cells if (outcome := ended[cell.key]) and outcome.status is Status.OK]
    plain = {cell.subject.name: outcome for cell, outcome in done if cell.defence == NONE}
    return [_cost(cell, outcome, plain[cell.subject.name]) for cell, outcome in done if cell.subject.name in plain]


def _cost(cell: TrainingCellSpec, outcome: CellOutcome, plain: CellOutcome) -> DefenceCost:
    found, base = (TrainingFindings.model_validate(one.record) for one in (outcome, plain))
    return DefenceCost(
        name=cell.defence,
        paper=found.paper,
        model=cell.subject.model,
        data=cell.subject.data,
        accuracy=found.accuracy,
        ci=list(found.ci),
        accuracies=found.accuracies,
        accuracy_drop=base.accuracy - found.accuracy,
        accuracy_drop_ci=None if cell.defence == NONE else drop_interval(found, base),
        key=cell.key,
        step_time_ratio=outcome.measured.get("step_ratio"),
        step_time_spread=[outcome.measured.get("step_low"), outcome.measured.get("step_high")],
        upload_bytes=found.bytes_sent,
        upload_ratio=_upload_ratio(found, base),
        diverged=found.diverged,
        classes=found.classes,
        chance=found.chance,
        at_chance=found.at_chance,
        guarantee=found.guarantee,
        guarantee_of_one=found.guarantee_of_one,
    )


def drop_interval(found: TrainingFindings, base: TrainingFindings) -> list[float | None]:
    """The 95 % interval of how much lower `found` is than `base`, a training without a defence."""
    return list(difference_interval(base.accuracy, found.accuracy, of_first=base.ci, of_second=found.ci))


def _upload_ratio(found: TrainingFindings, base: TrainingFindings) -> float:
    """Bytes sent beside those without a defence; values other than 0 where an earlier version did not count bytes."""
    if found.bytes_sent is None or not base.bytes_sent:
        return found.nonzero_fraction / max(base.nonzero_fraction, 1e-9)
    return found.bytes_sent / base.bytes_sent


def _budget(config: Config, *, unfinished: int) -> Budget | None:
    if config.budget is None and config.planned is None:
        return None
    planned = config.planned
    return Budget(
        attacks=planned.attacks if planned else {},
        left_out=planned.left_out if planned else (),
        seconds=config.budget,
        shortened=sorted(_find_shortened(config)),
        unfinished=unfinished,
        caution=_caution(config, unfinished=unfinished),
    )


def _find_shortened(config: Config) -> dict[str, PlannedAttack]:
    attacks = config.planned.attacks if config.planned else {}
    return {spec: length for spec, length in attacks.items() if length.steps < length.of}


def _caution(config: Config, *, unfinished: int) -> list[str]:
    """What a report must say when a budget made attackers weaker than they are."""
    limit = "The run's plan" if config.budget is None else f"The budget of {duration(config.budget)}"
    found = []
    if short := _find_shortened(config):
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


def _scenario(name: str) -> ScenarioText:
    rung = get_scenario(name)
    return ScenarioText(
        grants=sorted(item.value for item in rung.grants),
        withholds=sorted(item.value for item in rung.withholds),
        text=rung.text,
    )


def _left_out(plan: Plan) -> list[str]:
    """The cells there was no time for, as a reader of the report should know them."""
    labels = [cell.label for cell in plan.left_out]
    more = [f"… and {len(labels) - _NAMED} more cells."] if len(labels) > _NAMED else []
    return [f"Not run, for lack of time: {label}." for label in labels[:_NAMED]] + more


def _list_failed_trainings(plan: Plan, ended: dict[str, CellOutcome | None]) -> list[str]:
    """Accuracies that could not be measured, with the reason; a missing row of a table would not be noticed."""
    failed = [
        (cell, outcome) for cell in plan.trainings if (outcome := ended[cell.key]) and outcome.status is not Status.OK
    ]
    return [
        f"Accuracy of {cell.subject.name} under {cell.defence}: "
        f"{outcome.record.get('message') or outcome.record.get('error') or outcome.status}."
        for cell, outcome in failed[:_NAMED]
    ]


def _not_tested(config: Config) -> list[str]:
    """What a reader might believe was covered and was not."""
    extra = [spec for defence in config.defences for spec in strong_attacks(config, defence)]
    attacks = [*config.attacks, *extra]
    used = {parse_spec(spec)[0] for spec in attacks}
    defended = {parse_spec(part)[0] for spec in config.defences for part in split_chain(spec)}
    rows = [
        _missing("Attacks", sorted(set(ATTACKS) - used)),
        _missing("Defences", sorted(set(DEFENCES) - defended)),
        _missing("Scenarios", sorted(set("ABCDE") - set(config.scenarios))),
        _settings_left_out([attack_from_spec(spec) for spec in attacks], rounds=config.rounds or 1),
        f"Other batch sizes than {config.batch_size}; "
        + ("single gradients." if config.local else "updates after several local steps."),
        f"Batch normalisation in {'training' if config.mode == 'eval' else 'evaluation'} mode.",
    ]
    return [row for row in rows if row]


def _settings_left_out(attacks: Sequence[Attack], *, rounds: int) -> str:
    crafted = any(attack.is_malicious for attack in attacks)
    several = max(rounds, *(attack.rounds for attack in attacks)) > 1
    found = [] if crafted else ["servers that hand out crafted models"]
    found += ["secure aggregation", *([] if several else ["leakage summed over many rounds"])]
    return "; ".join(found).capitalize() + "."


def _missing(what: str, names: list[str]) -> str:
    return f"{what}: {', '.join(names)}." if names else ""
