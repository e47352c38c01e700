"""A whole audit: self-check, sweep, summary, report, in one directory that can be continued."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from leakscope.campaign.budget import TooLittleTimeError, afford
from leakscope.campaign.config import Config, Planned, load_config
from leakscope.campaign.durations import duration
from leakscope.campaign.execute import execute
from leakscope.campaign.plan import Plan, fitted, make_plan
from leakscope.campaign.price import Quote, quote
from leakscope.campaign.selfcheck import require_self_check
from leakscope.campaign.summary import summarise_campaign
from leakscope.errors import BadInputError, UsageError
from leakscope.files import private_folder, write_atomic
from leakscope.report import write_report
from leakscope.sweep import SweepResult, run
from leakscope.sweep.progress import show

# Of the budget: what the probe may use, and what is kept for a machine slower than it was then.
_FOR_PROBE, _FOR_SURPRISES = 0.25, 0.1
# Workers start, a summary and a page are written.
_AROUND_SECONDS = 3.0
# Before the probe, where that was not measured; and how much more than the least a refusal asks for.
_CHECK_SECONDS, _MARGIN = 3.0, 1.25


@dataclass(frozen=True)
class CampaignResult:
    """Where everything is, and what it came to."""

    directory: Path
    summary: dict[str, Any]
    report: Path
    sweep: SweepResult

    @property
    def exit_code(self) -> int:
        """0 done or within the gate, 1 above it, 3 inconclusive or out of time, 130 interrupted."""
        if self.sweep.interrupted:
            return 130
        missing = any(outcome is None for outcome in self.sweep.outcomes[: len(self.summary["cells"])])
        if self.summary["verdict"]["status"] == "inconclusive" or missing:
            return 3
        gate = self.summary["config"]["fail_above"]
        return 1 if gate is not None and _worst_undefended(self.summary) > gate else 0


def run_campaign(
    config: Config | str | Path,
    directory: str | Path,
    *,
    show_images: bool | None = None,
    workers: int | None = None,
    quiet: bool = False,
    retry_failed: bool = False,
    command: str = "",
) -> CampaignResult:
    """Run the audit `config` describes; run again, it continues where it stopped.

    With a budget, the first call probes, plans and keeps the plan in `config.yaml`; every later one
    follows that plan and has the whole budget again for what is left.
    """
    began = time.monotonic()
    settings = config if isinstance(config, Config) else load_config(config)
    folder = Path(directory)
    plan = make_plan(settings, show_images=show_images)
    settings = _continued(folder, settings)
    processes = count_workers(settings, plan, workers)
    check = require_self_check()
    if settings.budget is not None and settings.planned is None:
        _, planned = plan_within(settings.budget, plan, workers=processes, began=began)
        settings = settings.model_copy(update={"planned": planned})
    plan = plan if settings.planned is None else fitted(plan, settings.planned)
    private_folder(folder)
    _keep_config(folder, settings)
    with show(quiet=quiet) as listener:
        found = run(
            plan.cells, execute, folder, workers=min(processes, max(1, len(plan.cells))), timeout=settings.timeout,
            seconds=_left(settings.budget, began), retry_failed=retry_failed, on_event=listener,
        )  # fmt: skip
    summary = summarise_campaign(
        settings, plan, found.outcomes, check, command=command, out_of_time=found.out_of_time
    )  # fmt: skip
    write_atomic(folder / "summary.json", json.dumps(summary, indent=1, allow_nan=False).encode())
    report = write_report(folder, show_images=plan.show_images)
    return CampaignResult(folder, summary, report, found)


def count_workers(config: Config, plan: Plan, workers: int | None = None) -> int:
    """Processes a run uses: as told, or one per core; never more than it has cells."""
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be ≥ 1, got {workers}; leave it out for one per core")
    return min(workers or config.workers or os.cpu_count() or 1, max(1, len(plan.cells)))


def plan_within(
    budget: float, plan: Plan, *, workers: int, began: float | None = None
) -> tuple[Quote, Planned]:  # fmt: skip
    """Probe `plan`, and split over it what is left of `budget` seconds since `began`."""
    before = _CHECK_SECONDS if began is None else time.monotonic() - began
    _check_overhead(budget, before)
    prices = quote(plan, workers=workers, seconds=_FOR_PROBE * budget)
    around = prices.slowdown * _AROUND_SECONDS
    left = (budget - before - prices.probe_seconds - around) * (1 - _FOR_SURPRISES)
    try:
        # More processes than cores share the cores.
        return prices, afford(plan, prices, seconds=left, workers=min(workers, os.cpu_count() or 1))
    except TooLittleTimeError as refusal:
        rest = before + around + refusal.needed / (1 - _FOR_SURPRISES)
        # With more time the probe takes more as well, up to its share.
        least = max(rest + prices.probe_seconds, rest / (1 - _FOR_PROBE))
        raise UsageError(
            f"the budget of {duration(budget)} leaves {duration(max(0.0, left))} for attacks: the self-check takes "
            f"{duration(before)}, the probe took {duration(prices.probe_seconds)}, starting and reporting take "
            f"{duration(around)}, and {refusal}; give {duration(math.ceil(_MARGIN * least))} or more, or audit a "
            "smaller network or fewer victims"
        ) from refusal


def _check_overhead(budget: float, before: float) -> None:
    """Refuse a budget that is over before the first attack, and so before a probe."""
    # Processes start twice, for the probe and for the run.
    around = 2 * _AROUND_SECONDS
    if budget < before + around:
        raise UsageError(
            f"the budget of {duration(budget)} is over before any attack begins: the self-check takes "
            f"{duration(before)}, and starting, probing and reporting at least {duration(around)}; "
            f"give about {duration(math.ceil(2 * (before + around)))} or more"
        )


def _left(budget: float | None, began: float) -> float | None:
    return None if budget is None else max(0.1, budget - (time.monotonic() - began))


def _continued(folder: Path, config: Config) -> Config:
    """The settings with the plan of an earlier call; a directory belongs to one configuration for good."""
    path = folder / "config.yaml"
    if not path.exists():
        return config
    try:
        stored = load_config(path)
    except (BadInputError, UsageError):
        stored = None
    planned = config.planned or (stored.planned if stored else None)
    settings = config.model_copy(update={"planned": planned})
    if stored != settings:
        raise UsageError(
            f"{folder} holds a run with other settings; choose another directory, or go back to its config.yaml"
        )
    return settings


def _keep_config(folder: Path, config: Config) -> None:
    # What was not set is not written: a run of an older version, without these settings, reads the same.
    left_out = {name for name in ("budget", "planned") if getattr(config, name) is None}
    text = yaml.safe_dump(config.model_dump(mode="json", exclude=left_out), sort_keys=False)
    write_atomic(folder / "config.yaml", text.encode())


def _worst_undefended(summary: dict[str, Any]) -> float:
    values = [
        value for cell in summary["cells"] if cell["defence"] == "none" and cell["status"] == "ok"
        for value in cell["scores"]["psnr"] if value is not None
    ]  # fmt: skip
    return max(values, default=float("-inf"))
