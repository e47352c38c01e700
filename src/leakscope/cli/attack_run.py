"""The attack on one update file or on a folder of them: every result, its files, and the report beside them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from leakscope import files, progress
from leakscope.attack import Attack
from leakscope.audits.findings import number
from leakscope.audits.update_files import (
    AttackedUpdate,
    attack_update,
    record_failure,
    record_update,
    summarise_updates,
)
from leakscope.cli.result_folder import RESULT, result_folder, save_inputs
from leakscope.cli.time_limit import time_limit
from leakscope.cli.update_folder import Declaration, TrueExamples
from leakscope.errors import BadInputError, InconclusiveError, KnowledgeError, UnsuitableError
from leakscope.report import CellRecord, Summary, write_report
from leakscope.report.evidence import group
from leakscope.report.render import render
from leakscope.types import Observation

_BAD_FILE = BadInputError.exit_code


@dataclass(frozen=True)
class AttackedFile:
    """One file: its line in the report, its entry in result.json, and its pictures where there are originals."""

    record: CellRecord
    entry: dict[str, Any]
    pictures: tuple[Tensor, Tensor] | None = None
    is_bad: bool = False


@dataclass(frozen=True)
class AttackRun:
    """One attack on all the files of a command; `seconds` is the longest time of one, 0 for any."""

    attack: Attack
    declared: Declaration
    originals: TrueExamples | None
    model: str
    seed: int
    is_folder: bool
    command: str = ""
    seconds: float = 0.0

    def write(self, paths: list[Path], out: Path, *, fail_above: float | None, show_images: bool) -> dict[str, Any]:
        """Attack every file and write what was found; the folder is changed only when all is written."""
        with result_folder(out) as folder:
            done = [self._attack(path, folder, prefix=self._prefix(place)) for place, path in enumerate(paths)]
            summary = summarise_updates(
                [one.record for one in done],
                title=f"{self.attack.name} on {paths[0].name if len(paths) == 1 else f'{len(paths)} updates'}",
                command=self.command,
                fail_above=fail_above,
            )
            result = self._result(done, summary)
            self._write_report(folder, done, summary, show_images=show_images)
            files.write_atomic(folder / RESULT, json.dumps(result, indent=1, allow_nan=False).encode())
        return result

    def _prefix(self, place: int) -> str:
        return f"update-{place:04d}" if self.is_folder else "image"

    def _attack(self, path: Path, folder: Path, *, prefix: str) -> AttackedFile:
        """Attack one file; in a folder, one that is bad or refused does not stop the others."""
        try:
            with time_limit(self.seconds, path.name):
                return self._attack_one(path, folder, prefix=prefix)
        except (BadInputError, UnsuitableError, KnowledgeError, InconclusiveError) as error:
            if not self.is_folder:
                raise
            is_bad, is_late = isinstance(error, BadInputError), isinstance(error, InconclusiveError)
            record = record_failure(
                path.name,
                model=self.model,
                scenario=self.declared.scenario,
                attack=self.attack.name,
                seed=self.seed,
                status="error" if is_bad else "timeout" if is_late else "refused",
                error=str(error),
            )
            entry = {"file": path.name, "status": record.status, "error": str(error), "images": [], "inputs": None}
            return AttackedFile(record, entry, is_bad=is_bad)

    def _attack_one(self, path: Path, folder: Path, *, prefix: str) -> AttackedFile:
        update = self.declared.open(path)
        truth = None if self.originals is None else self.originals.of(path, update)
        seen = self.declared.observe(update, truth)
        with progress.show_progress() as shown, progress.count_steps(shown, self.attack) as watch:
            attacked = attack_update(self.attack, seen, truth=truth, seed=self.seed, watch=watch)
        is_unit = seen.bounds == (0.0, 1.0)
        images, inputs = save_inputs(folder, attacked.found.inputs, is_unit_range=is_unit, prefix=prefix)
        record = record_update(attacked, name=path.name, model=self.model, seen=seen, paper=self.attack.paper)
        entry = {"file": path.name} | _entry(attacked, record, seen) | {"images": images, "inputs": inputs}
        return AttackedFile(record, entry, _pictures(attacked) if is_unit else None)

    def _result(self, done: list[AttackedFile], summary: Summary) -> dict[str, Any]:
        """What result.json holds: of one file its own numbers, of a folder a list, worst first."""
        code = _exit_code(done, summary)
        verdict = {} if summary.verdict is None else {"grade": summary.verdict.grade, "line": summary.verdict.line}
        if not self.is_folder:
            return done[0].entry | verdict | {"exit_code": code}
        ranked = sorted(done, key=lambda one: _badness(one.record), reverse=True)
        saved = [name for one in done for name in (*one.entry["images"], one.entry["inputs"]) if name is not None]
        updates = [one.entry for one in ranked]
        return {"updates": updates, "images": saved, "inputs": None} | verdict | {"exit_code": code}

    def _write_report(self, folder: Path, done: list[AttackedFile], summary: Summary, *, show_images: bool) -> None:
        files.write_atomic(folder / "summary.json", summary.to_json().encode())
        page = write_report(folder)
        if show_images:
            pictures = {one.record.key: one.pictures for one in done if one.pictures is not None}
            files.write_atomic(page, render(summary, pictures, show_images=True).encode())


def _entry(attacked: AttackedUpdate, record: CellRecord, seen: Observation) -> dict[str, Any]:
    found, fits = attacked.found, record.fits
    worst = group([record]).worst
    return {
        "attack": attacked.result.attack,
        "scenario": seen.scenario,
        "status": str(found.status),
        "loss": number(found.loss),
        "labels": None if found.targets is None else found.targets.tolist(),
        "evaluations": found.evaluations,
        "notes": list(found.notes),
        "fit": fits[0].model_dump() if fits else None,
        "scores": record.scores or None,
        "worst": None
        if worst is None
        else {
            "example": worst.index,
            "grade": worst.grade,
            "psnr": number(worst.psnr),
            "ssim": worst.ssim,
            "baseline_psnr": worst.baseline,
        },
    }


def _pictures(attacked: AttackedUpdate) -> tuple[Tensor, Tensor] | None:
    truth, found = attacked.result.truth, attacked.result.reconstruction
    return None if truth is None or found is None or truth.ndim != 4 else (truth, found.clamp(0, 1))


def _badness(record: CellRecord) -> tuple[int, float, float, float]:
    worst = group([record]).worst
    return worst.badness if worst else (-1, 0.0, 0.0, 0.0)


def _exit_code(done: list[AttackedFile], summary: Summary) -> int:
    """1 a leak above the gate, else 4 a bad file, else 3 a result that is no evidence, else 0."""
    code = 0 if summary.verdict is None else summary.verdict.exit_code or 0
    if code == 1:
        return code
    if any(one.is_bad for one in done):
        return _BAD_FILE
    return 3 if code == 3 or any(one.record.status != "ok" for one in done) else 0
