"""A whole audit: self-check, sweep, summary, report, in one directory that can be continued."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from leakscope import data, models
from leakscope.audits.audit import audit
from leakscope.audits.bill import Bill
from leakscope.audits.budget import plan_within
from leakscope.audits.config import Config, check_workers, load_config
from leakscope.audits.execute import execute_planned
from leakscope.audits.inputs import DataRecord, Inputs
from leakscope.audits.limits import choose_limits
from leakscope.audits.overhead import Overhead, report_seconds
from leakscope.audits.plan import Plan, fit_plan, make_plan
from leakscope.audits.price import price_cells
from leakscope.audits.stale import explain_reruns
from leakscope.audits.summary import summarise_audit
from leakscope.errors import BadInputError, InconclusiveError, UsageError
from leakscope.execution import PROCESSES
from leakscope.files import write_atomic
from leakscope.report import SelfCheck, Summary, write_report
from leakscope.runner import NamedCall, SweepResult
from leakscope.runner.events import Interrupts, show_events
from leakscope.runner.ledger import open_ledger
from leakscope.runner.run import open_pool, run_in
from leakscope.types import Status

# Settings that version 0.1 did not have; where they were not set, it reads the same.
_UNSET = ("budget", "planned", "bounds", "one_hot", "normalise", "classes", "rounds", "memory_mb")

# A dry run that takes as long as the run helps nobody: what was not sampled by then is assumed, and said to be.
_MOST_SAMPLE_SECONDS = 45.0

# A closed form is exact up to rounding; an optimiser on an easy problem must get near.
CANARIES = (("fc-inversion", 40.0), ("inverting-gradients:steps=150", 25.0))


@dataclass(frozen=True)
class CampaignResult:
    """Where everything is, and what it came to; `missing` attack cells have no result."""

    directory: Path
    summary: Summary
    report: Path
    sweep: SweepResult
    missing: int = 0

    @property
    def exit_code(self) -> int:
        """0 done or within the gate, 1 above it, 3 inconclusive; 130 after Ctrl-C, 143 after SIGTERM."""
        if self.sweep.interrupted:
            return 128 + (self.sweep.signal or signal.SIGINT)
        judged = self.summary.verdict
        return 3 if judged is None or judged.exit_code is None else judged.exit_code


def run_campaign(
    config: Config | str | Path,
    directory: str | Path,
    *,
    show_images: bool | None = None,
    workers: int | None = None,
    on: str = PROCESSES,
    quiet: bool = False,
    retry_failed: bool = False,
    command: str = "",
) -> CampaignResult:
    """Run the audit `config` describes; run again, it continues where it stopped.

    A `Config` may name code of the user's own, `package.module:function`; a file may not.

    With a budget, the first call samples, plans and keeps the plan in `config.yaml`; every later one
    follows that plan and has the whole budget again for what is left.

    Cells run `on` processes of this machine, or on Ray: see `leakscope.runner.run`.
    """
    began = time.monotonic()
    settings = config if isinstance(config, Config) else load_config(config)
    check_workers(settings.workers if workers is None else workers, on=on)
    folder = Path(directory)
    plan = make_plan(settings, show_images=show_images, record=DataRecord.read(folder))
    # What was chosen for the networks is part of the settings: it is written down, and the same command finds it again.
    settings = settings.model_copy(update={"attacks": plan.specs})
    settings = _continue_run(folder, settings, plan.inputs)
    processes = _count_workers(settings, plan, workers)
    check = require_self_check()
    if settings.budget is not None and settings.planned is None:
        _, planned = plan_within(settings.budget, plan, workers=processes, began=began)
        settings = settings.model_copy(update={"planned": planned})
    plan = plan if settings.planned is None else fit_plan(plan, settings.planned)
    processes = _count_workers(settings, plan, processes)
    # The lock covers all that is written here, and a signal waits until it is: SIGTERM leaves a summary too.
    with open_ledger(folder) as ledger, Interrupts() as interrupts:
        _continue_run(folder, settings, plan.inputs)
        plan.inputs.new_record.write(folder)
        public = publish(settings, plan.inputs)
        _keep_config(folder, public)
        with show_events(quiet=quiet) as listener:
            explain_reruns(ledger, plan.cells, listener)
            call = NamedCall.to(execute_planned, inputs=plan.inputs.to_json())
            with open_pool(on, call, workers=processes) as pool:
                found = run_in(
                    ledger,
                    [spec.cell for spec in plan.cells],
                    pool,
                    limits=choose_limits(settings, workers=processes, seconds=_left(settings.budget, began), on=on),
                    interrupts=interrupts,
                    retry_failed=retry_failed,
                    on_event=listener,
                )
        # One at a time: a cell's pictures are not for the summary, and not for the memory.
        outcomes = [None if outcome is None else replace(outcome, tensors={}) for outcome in found.outcomes]
        told = plan.inputs.redact(command)
        summary = summarise_audit(public, plan, replace(found, outcomes=outcomes), check, command=told)
        write_atomic(folder / "summary.json", summary.to_json().encode())
        report = write_report(folder, show_images=plan.show_images)
        # A signal may have come after the last cell: what is written is whole, and the caller must know of it.
        sweep = replace(found, interrupted=interrupts.count > 0, signal=interrupts.signal)
    missing = sum(outcome is None for outcome in outcomes[: len(plan.attacks)])
    return CampaignResult(folder, summary, report, sweep, missing)


def price_campaign(
    config: Config, *, show_images: bool | None = None, workers: int | None = None, began: float | None = None
) -> Bill:
    """Sample what `config` describes and say what it would take; nothing is written, no private example attacked.

    `began` is when the program started, by `time.monotonic`: what it took until here, the run will take as well.
    """
    began = time.monotonic() if began is None else began
    plan = make_plan(config.model_copy(update={"planned": None}), show_images=show_images)
    processes = _count_workers(config, plan, workers)
    started = time.monotonic()
    require_self_check()
    checked = time.monotonic()
    planned = config.planned
    if config.budget is not None and planned is None:
        prices, planned = plan_within(config.budget, plan, workers=processes)
    else:
        prices = price_cells(plan, workers=processes, seconds=_MOST_SAMPLE_SECONDS)
    fitted = plan if planned is None else fit_plan(plan, planned)
    report = report_seconds(len(fitted.cells))
    overhead = Overhead(started - began, checked - started, prices.starting, report)
    return Bill(fitted, prices, processes, config.budget, planned, overhead)


def _count_workers(config: Config, plan: Plan, workers: int | None) -> int:
    """Processes a run uses: as told, or one per core; never more than it has cells."""
    check_workers(workers)
    return min(workers or config.workers or os.cpu_count() or 1, max(1, len(plan.cells)))


def _left(budget: float | None, began: float) -> float | None:
    return None if budget is None else max(0.1, budget - (time.monotonic() - began))


def publish(config: Config, inputs: Inputs) -> Config:
    """The settings as outputs may hold them: data and weights by name, not by path."""
    names = {place: name for name, place in inputs.locations.items()}
    data = tuple(names.get(place, place) for place in config.data)
    weights = None if config.weights is None else Path(config.weights).name
    return config.model_copy(update={"data": data, "weights": weights})


def _continue_run(folder: Path, config: Config, inputs: Inputs) -> Config:
    """The settings with the plan of an earlier call; a directory belongs to one configuration for good."""
    path = folder / "config.yaml"
    if not path.exists():
        return config
    try:
        # Written by leakscope, and only compared: what runs was named in this call.
        stored = load_config(path, allow_code=True, checking=False)
    except (BadInputError, UsageError):
        stored = None
    planned = config.planned or (stored.planned if stored else None)
    settings = config.model_copy(update={"planned": planned})
    # Earlier versions wrote paths.
    known = [] if stored is None else [_what_runs(stored), _what_runs(publish(stored, inputs))]
    if _what_runs(publish(settings, inputs)) not in known:
        raise UsageError(
            f"{folder} holds a run with other settings; choose another directory, or go back to its config.yaml"
        )
    return settings


def _what_runs(config: Config) -> Config:
    """The settings without those that change how long a run takes, and not what it measures."""
    return config.model_copy(update=dict.fromkeys(("workers", "timeout", "memory_mb")))


def _keep_config(folder: Path, config: Config) -> None:
    left_out = {name for name in _UNSET if getattr(config, name) is None}
    text = yaml.safe_dump(config.model_dump(mode="json", exclude=left_out), sort_keys=False)
    write_atomic(folder / "config.yaml", text.encode())


def self_check() -> SelfCheck:
    """Rebuild a planted image in closed form and by optimisation; report the weaker of the two."""
    model = models.build("mlp", num_classes=10, in_channels=1, image_size=8, hidden=[64], activation="sigmoid", seed=7)
    planted = data.load("digits", split="test", indices=[3])
    rows = []
    for spec, least in CANARIES:
        result = audit(model, planted, spec, scenario="C", seed=7, prior_alone=False)
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
