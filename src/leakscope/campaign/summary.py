"""All numbers of a campaign in one plain document, with the verdict."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from leakscope.campaign.caution import budget_record, cautioned, left_out_words, limit_words
from leakscope.campaign.config import Config
from leakscope.campaign.plan import NONE, Plan
from leakscope.campaign.selfcheck import SelfCheck
from leakscope.registry import ATTACKS, DEFENCES, parse_spec, split_chain
from leakscope.report import verdict
from leakscope.sweep import Cell, CellOutcome
from leakscope.threat import get_scenario
from leakscope.types import Status
from leakscope.version import __version__


def summarise_campaign(
    config: Config,
    plan: Plan,
    outcomes: Sequence[CellOutcome | None],
    check: SelfCheck,
    *,
    command: str,
    out_of_time: bool = False,
) -> dict[str, Any]:
    """Build `summary.json`; apart from `timings` it depends on configuration and code alone."""
    pairs = list(zip(plan.cells, outcomes, strict=True))
    attacks = [_attack_row(cell, outcome, out_of_time) for cell, outcome in pairs[: len(plan.attacks)]]
    unfinished = sum(outcome is None for _, outcome in pairs) if out_of_time else 0
    costs = _cost_rows(pairs[len(plan.attacks) :])
    checked = {"name": check.name, "psnr": check.psnr, "passed": check.passed}
    statuses = Counter(row["status"] for row in attacks)
    return {
        "schema": 1,
        "title": config.title,
        "leakscope": __version__,
        "command": command,
        "config": config.model_dump(mode="json"),
        "environment": {
            "python": platform.python_version(), "torch": torch.__version__.split("+")[0],
            "platform": f"{platform.system()} {platform.machine()}", "threads": 1,
        },
        "code": {"version": __version__, "seeds": list(config.seeds)},
        "self_check": checked,
        "threshold_psnr": config.threshold_psnr,
        "verdict": cautioned(
            verdict(attacks, config.threshold_psnr, defences=costs, self_check=checked), config, unfinished=unfinished
        ),
        "budget": budget_record(config, unfinished=unfinished),
        "scenarios": {name: _scenario(name) for name in config.scenarios},
        "cells": attacks,
        "defences": costs,
        "counts": {
            "total": len(attacks), "ok": statuses.get("ok", 0),
            "failed": {status: count for status, count in sorted(statuses.items()) if status != "ok"},
        },
        "not_tested": [*left_out_words(plan), *_not_tested(config)],
        "reproduce": [command] if command else [],
        "timings": {cell.key: None if outcome is None else outcome.seconds for cell, outcome in pairs},
    }  # fmt: skip


def _attack_row(cell: Cell, outcome: CellOutcome | None, out_of_time: bool) -> dict[str, Any]:
    spec: Any = cell.spec
    row = {
        "key": cell.key, "model": spec["subject"]["model"], "data": spec["subject"]["data"],
        "attack": spec["attack"], "defence": spec["defence"], "adaptive": spec["adaptive"],
        "scenario": spec["scenario"], "seed": spec["seed"], "local": spec["local"],
        "victims": spec["victims"], "batch_size": spec["batch_size"],
        "status": str(Status.ERROR), "n": 0,
        "error": "the budget was over before it ran" if out_of_time else "interrupted before it ran",
    }  # fmt: skip
    if outcome is not None:
        row |= {**outcome.record, "error": _error(outcome.record), "status": str(outcome.status)}
    if spec.get("limit"):
        row |= {"limit": spec["limit"], "notes": [limit_words(spec["limit"]), *row.get("notes", [])]}
    return row


def _error(record: dict[str, Any]) -> str | None:
    """Why a cell failed or was refused, as one line."""
    parts = [str(record[name]) for name in ("error", "message") if record.get(name)]
    return ": ".join(parts) or None


def _cost_rows(pairs: Sequence[tuple[Cell, CellOutcome | None]]) -> list[dict[str, Any]]:
    plain: dict[str, CellOutcome] = {}
    for cell, outcome in pairs:
        if outcome is not None and cell.spec["defence"] == NONE:
            plain[str(cell.spec["subject"])] = outcome
    rows = []
    for cell, outcome in pairs:
        base = plain.get(str(cell.spec["subject"]))
        if outcome is None or outcome.status is not Status.OK or base is None or "accuracy" not in base.record:
            continue
        subject: Any = cell.spec["subject"]
        rows.append({
            "name": cell.spec["defence"], "paper": outcome.record["paper"],
            "model": subject["model"], "data": subject["data"],
            "accuracy": outcome.record["accuracy"], "ci": outcome.record["ci"],
            "accuracy_drop": base.record["accuracy"] - outcome.record["accuracy"],
            "step_time_ratio": outcome.measured["step_seconds"] / base.measured["step_seconds"],
            "upload_ratio": outcome.record["nonzero_fraction"] / max(base.record["nonzero_fraction"], 1e-9),
            "diverged": outcome.record["diverged"],
        })  # fmt: skip
    return rows


def _scenario(name: str) -> dict[str, Any]:
    rung = get_scenario(name)
    return {
        "grants": sorted(item.value for item in rung.grants),
        "withholds": sorted(item.value for item in rung.withholds),
        "text": rung.text,
    }


def _not_tested(config: Config) -> list[str]:
    """What a reader might believe was covered and was not."""
    used = {parse_spec(spec)[0] for spec in config.attacks}
    defended = {parse_spec(part)[0] for spec in config.defences for part in split_chain(spec)}
    rows = [
        _missing("Attacks", sorted(set(ATTACKS) - used)),
        _missing("Defences", sorted(set(DEFENCES) - defended)),
        _missing("Scenarios", sorted(set("ABCDE") - set(config.scenarios))),
        "Servers that hand out crafted models; secure aggregation; leakage summed over many rounds.",
        f"Other batch sizes than {config.batch_size}; "
        + ("single gradients." if config.local else "updates after several local steps."),
        f"Batch normalisation in {'training' if config.mode == 'eval' else 'evaluation'} mode.",
    ]
    return [row for row in rows if row]


def _missing(what: str, names: list[str]) -> str:
    return f"{what}: {', '.join(names)}." if names else ""
