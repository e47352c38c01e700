"""A whole audit: self-check, sweep, summary, report, in one directory that can be continued."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from leakscope.campaign.config import Config, load_config
from leakscope.campaign.execute import execute
from leakscope.campaign.plan import make_plan
from leakscope.campaign.selfcheck import require_self_check
from leakscope.campaign.summary import summarise_campaign
from leakscope.errors import UsageError
from leakscope.files import private_folder, write_atomic
from leakscope.report import write_report
from leakscope.sweep import SweepResult, run
from leakscope.sweep.progress import show


@dataclass(frozen=True)
class CampaignResult:
    """Where everything is, and what it came to."""

    directory: Path
    summary: dict[str, Any]
    report: Path
    sweep: SweepResult

    @property
    def exit_code(self) -> int:
        """0 done or within the gate, 1 above it, 3 inconclusive, 130 interrupted."""
        if self.sweep.interrupted:
            return 130
        if self.summary["verdict"]["status"] == "inconclusive":
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
    """Run the audit `config` describes; run again, it continues where it stopped."""
    settings = config if isinstance(config, Config) else load_config(config)
    folder = Path(directory)
    plan = make_plan(settings, show_images=show_images)
    private_folder(folder)
    _keep_config(folder, settings)
    check = require_self_check()
    processes = workers or settings.workers or os.cpu_count() or 1
    with show(quiet=quiet) as listener:
        found = run(
            plan.cells, execute, folder, workers=min(processes, max(1, len(plan.cells))), timeout=settings.timeout,
            retry_failed=retry_failed, on_event=listener,
        )  # fmt: skip
    summary = summarise_campaign(settings, plan, found.outcomes, check, command=command)
    write_atomic(folder / "summary.json", json.dumps(summary, indent=1, allow_nan=False).encode())
    report = write_report(folder, show_images=plan.show_images)
    return CampaignResult(folder, summary, report, found)


def _keep_config(folder: Path, config: Config) -> None:
    """Store the settings; a directory belongs to one configuration for good."""
    path = folder / "config.yaml"
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False).encode()
    if path.exists() and path.read_bytes() != text:
        raise UsageError(
            f"{folder} holds a run with other settings; choose another directory, or go back to its config.yaml"
        )
    write_atomic(path, text)


def _worst_undefended(summary: dict[str, Any]) -> float:
    values = [
        value for cell in summary["cells"] if cell["defence"] == "none" and cell["status"] == "ok"
        for value in cell["scores"]["psnr"] if value is not None
    ]  # fmt: skip
    return max(values, default=float("-inf"))
