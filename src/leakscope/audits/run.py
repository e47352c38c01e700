"""A whole audit: self-check, sweep, summary, report, in one directory that can be continued."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from leakscope import data, models
from leakscope.audits.audit import audit
from leakscope.audits.bill import Bill
from leakscope.audits.budget import plan_within
from leakscope.audits.config import Config, load_config
from leakscope.audits.execute import execute
from leakscope.audits.plan import Plan, fit_plan, make_plan
from leakscope.audits.price import price_cells
from leakscope.audits.specs import NONE
from leakscope.audits.summary import summarise_audit
from leakscope.errors import BadInputError, InconclusiveError, UsageError
from leakscope.files import private_folder, write_atomic
from leakscope.report import SelfCheck, Summary, write_report
from leakscope.report.evidence import group
from leakscope.runner import SweepResult, run
from leakscope.runner.events import show_events
from leakscope.types import Status

# Settings that version 0.1 did not have; where they were not set, it reads the same.
_UNSET = ("budget", "planned", "bounds", "normalise", "classes", "rounds")

# A closed form is exact up to rounding; an optimiser on an easy problem must get near.
CANARIES = (("fc-inversion", 40.0), ("inverting-gradients:steps=150", 25.0))


@dataclass(frozen=True)
class CampaignResult:
    """Where everything is, and what it came to."""

    directory: Path
    summary: Summary
    report: Path
    sweep: SweepResult

    @property
    def exit_code(self) -> int:
        """0 done or within the gate, 1 above it, 3 inconclusive or out of time, 130 interrupted."""
        if self.sweep.interrupted:
            return 130
        missing = any(outcome is None for outcome in self.sweep.outcomes[: len(self.summary.cells)])
        if self.summary.verdict is None or self.summary.verdict.status == "inconclusive" or missing:
            return 3
        gate = self.summary.config["fail_above"]
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

    A `Config` may name code of the user's own, `package.module:function`; a file may not.

    With a budget, the first call samples, plans and keeps the plan in `config.yaml`; every later one
    follows that plan and has the whole budget again for what is left.
    """
    began = time.monotonic()
    settings = config if isinstance(config, Config) else load_config(config)
    folder = Path(directory)
    plan = make_plan(settings, show_images=show_images)
    settings = _continue_run(folder, settings)
    processes = _count_workers(settings, plan, workers)
    check = require_self_check()
    if settings.budget is not None and settings.planned is None:
        _, planned = plan_within(settings.budget, plan, workers=processes, began=began)
        settings = settings.model_copy(update={"planned": planned})
    plan = plan if settings.planned is None else fit_plan(plan, settings.planned)
    private_folder(folder)
    _keep_config(folder, settings)
    with show_events(quiet=quiet) as listener:
        found = run(
            [spec.cell for spec in plan.cells],
            execute,
            folder,
            workers=min(processes, max(1, len(plan.cells))),
            timeout=settings.timeout,
            seconds=_left(settings.budget, began),
            retry_failed=retry_failed,
            on_event=listener,
        )
    summary = summarise_audit(settings, plan, found.outcomes, check, command=command, out_of_time=found.out_of_time)
    write_atomic(folder / "summary.json", summary.to_json().encode())
    report = write_report(folder, show_images=plan.show_images)
    return CampaignResult(folder, summary, report, found)


def price_campaign(config: Config, *, show_images: bool | None = None, workers: int | None = None) -> Bill:
    """Sample what `config` describes and say what it would take; nothing is written, no private example attacked."""
    plan = make_plan(config.model_copy(update={"planned": None}), show_images=show_images)
    processes = _count_workers(config, plan, workers)
    planned = config.planned
    if config.budget is not None and planned is None:
        prices, planned = plan_within(config.budget, plan, workers=processes)
    else:
        prices = price_cells(plan, workers=processes)
    return Bill(plan if planned is None else fit_plan(plan, planned), prices, processes, config.budget, planned)


def _count_workers(config: Config, plan: Plan, workers: int | None) -> int:
    """Processes a run uses: as told, or one per core; never more than it has cells."""
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be ≥ 1, got {workers}; leave it out for one per core")
    return min(workers or config.workers or os.cpu_count() or 1, max(1, len(plan.cells)))


def _left(budget: float | None, began: float) -> float | None:
    return None if budget is None else max(0.1, budget - (time.monotonic() - began))


def _continue_run(folder: Path, config: Config) -> Config:
    """The settings with the plan of an earlier call; a directory belongs to one configuration for good."""
    path = folder / "config.yaml"
    if not path.exists():
        return config
    try:
        # Written by leakscope, and only compared: what runs was named in this call.
        stored = load_config(path, allow_code=True)
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
    left_out = {name for name in _UNSET if getattr(config, name) is None}
    text = yaml.safe_dump(config.model_dump(mode="json", exclude=left_out), sort_keys=False)
    write_atomic(folder / "config.yaml", text.encode())


def _worst_undefended(summary: Summary) -> float:
    examples = group(cell for cell in summary.cells if cell.defence == NONE).examples
    return max((example.psnr for example in examples), default=float("-inf"))


def self_check() -> SelfCheck:
    """Rebuild a planted image in closed form and by optimisation; report the weaker of the two."""
    model = models.build("mlp", num_classes=10, in_channels=1, image_size=8, hidden=[64], activation="sigmoid", seed=7)
    planted = data.load("digits", split="test", indices=[3])
    rows = []
    for spec, least in CANARIES:
        result = audit(model, planted, spec, scenario="C", seed=7)
        psnr = float(result.scores.psnr.min()) if result.scores is not None else 0.0
        passed = result.status is Status.OK and psnr >= least
        name = f"{spec.split(':')[0]} on a planted image"
        rows.append((psnr - least, SelfCheck(name=name, psnr=psnr, passed=passed)))
    return min(rows, key=lambda row: row[0])[1]


def require_self_check() -> SelfCheck:
    """As `self_check`, but refuse to go on when the instrument is broken."""
    found = self_check()
    if not found.passed:
        raise InconclusiveError(
            f"the self-check failed: {found.name} reached only {found.psnr or 0.0:.1f} dB where it must succeed; "
            "no result of this installation can be trusted, run `leakscope doctor`"
        )
    return found
