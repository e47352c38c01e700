"""The attack on one update file or on a folder of them: every result, its files, and the report beside them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from leakscope import files, progress
from leakscope.attack import Attack
from leakscope.audits.findings import number
from leakscope.audits.inputs import redact_paths
from leakscope.audits.update_files import (
    AttackedUpdate,
    add_nulls,
    attack_update,
    record_failure,
    record_update,
    summarise_updates,
)
from leakscope.audits.update_nulls import KnownUpdate, attack_made_update, measure_update_nulls
from leakscope.cli.result_folder import RESULT, result_folder, save_inputs, save_tokens
from leakscope.cli.time_limit import time_limit
from leakscope.cli.update_folder import Declaration, TrueExamples
from leakscope.errors import BadInputError, InconclusiveError, KnowledgeError, UnsuitableError
from leakscope.report import CellRecord, Summary, write_report
from leakscope.report.evidence import group
from leakscope.report.render import render
from leakscope.report.tokens import tokens_words
from leakscope.types import Batch, Reconstruction

_BAD_FILE = BadInputError.exit_code


@dataclass(frozen=True)
class AttackedFile:
    """One file: its line in the report, what came back, and the names of the files it was saved in.

    `known` is there where the true examples are, and `has_pictures` where they are pictures with values in [0, 1].
    `show_private` lets the tokens that were found be named.
    """

    path: Path
    record: CellRecord
    attacked: AttackedUpdate | None = None
    known: KnownUpdate | None = None
    images: tuple[str, ...] = ()
    inputs: str | None = None
    has_pictures: bool = False
    is_bad: bool = False
    show_private: bool = False

    @property
    def entry(self) -> dict[str, Any]:
        """What result.json says of it."""
        told = (
            {"status": self.record.status, "error": self.record.error}
            if self.attacked is None
            else _entry(self.attacked, self.record)
            | _tokens_entry(self.attacked.found, self.record, show_ids=self.show_private)
        )
        return {"file": self.path.name} | told | {"images": list(self.images), "inputs": self.inputs}

    @property
    def pictures(self) -> tuple[Tensor, Tensor] | None:
        """True and rebuilt pictures."""
        return _pictures(self.attacked) if self.has_pictures and self.attacked is not None else None


@dataclass(frozen=True)
class Scoring:
    """What results are held against: the true examples, and what is reached without the update.

    `prior_alone` is dear where a file has no other beside it: one attack more.
    """

    originals: TrueExamples
    public: Batch | None = None
    prior_alone: bool = True


@dataclass(frozen=True)
class AttackRun:
    """One attack on all the files of a command; `seconds` is the longest time of one, 0 for any."""

    attack: Attack
    declared: Declaration
    scoring: Scoring | None
    model: str
    seed: int
    is_folder: bool
    command: str = ""
    private_paths: tuple[tuple[str, str], ...] = ()
    show_private: bool = False
    seconds: float = 0.0

    def write(self, paths: list[Path], out: Path, *, fail_above: float | None) -> dict[str, Any]:
        """Attack every file and write what was found; the folder is changed only when all is written."""
        with result_folder(out) as folder:
            done = [self._attack(path, folder, prefix=self._prefix(place)) for place, path in enumerate(paths)]
            known = [one.known for one in done if one.known is not None]
            done = [self._add_nulls(one, known) for one in done]
            summary = summarise_updates(
                [one.record for one in done],
                title=f"{self.attack.name} on {paths[0].name if len(paths) == 1 else f'{len(paths)} updates'}",
                command=self._redact(self.command),
                fail_above=fail_above,
            )
            result = self._result(done, summary)
            self._write_report(folder, done, summary)
            files.write_atomic(folder / RESULT, json.dumps(result, indent=1, allow_nan=False).encode())
        return result

    def _redact(self, text: str) -> str:
        """Text as the result may hold it: files and folders by name, not by path."""
        return redact_paths(text, self.private_paths)

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
                error=self._redact(str(error)),
            )
            return AttackedFile(path, record, is_bad=is_bad)

    def _attack_one(self, path: Path, folder: Path, *, prefix: str) -> AttackedFile:
        update = self.declared.open(path)
        truth = None if self.scoring is None else self.scoring.originals.of(path, update)
        seen = self.declared.observe(update, truth)
        with progress.show_progress() as shown, progress.count_steps(shown, self.attack) as watch:
            attacked = attack_update(self.attack, seen, truth=truth, seed=self.seed, watch=watch)
        is_unit = seen.bounds == (0.0, 1.0)
        found = attacked.found
        if found.tokens is None:
            images, inputs = save_inputs(folder, found.inputs, is_unit_range=is_unit, prefix=prefix)
        else:
            images, inputs = [], save_tokens(folder, found.tokens, prefix=prefix)
        return AttackedFile(
            path,
            record_update(attacked, name=path.name, model=self.model, seen=seen, paper=self.attack.paper),
            attacked,
            None if truth is None else KnownUpdate.of(path.name, update, found=found, truth=truth),
            images=tuple(images),
            inputs=inputs,
            has_pictures=is_unit,
            show_private=self.show_private,
        )

    def _add_nulls(self, one: AttackedFile, known: list[KnownUpdate]) -> AttackedFile:
        """The file with what is reached without its update, now that all others have been attacked."""
        if self.scoring is None or one.known is None or one.attacked is None:
            return one
        nulls = measure_update_nulls(
            one.known,
            known,
            attack_made=partial(self._attack_made, one.path, one.known.truth) if self.scoring.prior_alone else None,
            public=self.scoring.public,
            seed=self.seed,
        )
        attacked, record = add_nulls(one.attacked, one.record, nulls)
        return replace(one, attacked=attacked, record=record)

    def _attack_made(self, path: Path, truth: Batch, public: Batch | None) -> Reconstruction:
        # Read again: the updates of a folder may be too large to keep them all.
        update = self.declared.open(path)
        seen = self.declared.observe(update, truth)
        with (
            time_limit(self.seconds, path.name),
            progress.show_progress() as shown,
            progress.count_steps(shown, self.attack) as watch,
        ):
            return attack_made_update(self.attack, seen, public, update=update, like=truth, seed=self.seed, watch=watch)

    def _result(self, done: list[AttackedFile], summary: Summary) -> dict[str, Any]:
        """What result.json holds: of one file its own numbers, of a folder a list, worst first."""
        code = _exit_code(done, summary)
        verdict = {} if summary.verdict is None else {"grade": summary.verdict.grade, "line": summary.verdict.line}
        if not self.is_folder:
            return done[0].entry | verdict | {"exit_code": code}
        ranked = sorted(done, key=lambda one: _badness(one.record), reverse=True)
        saved = [name for one in done for name in (*one.images, one.inputs) if name is not None]
        updates = [one.entry for one in ranked]
        return {"updates": updates, "images": saved, "inputs": None} | verdict | {"exit_code": code}

    def _write_report(self, folder: Path, done: list[AttackedFile], summary: Summary) -> None:
        files.write_atomic(folder / "summary.json", summary.to_json().encode())
        page = write_report(folder)
        if self.show_private:
            pictures = {one.record.key: found for one in done if (found := one.pictures) is not None}
            files.write_atomic(page, render(summary, pictures, show_images=True).encode())


def _entry(attacked: AttackedUpdate, record: CellRecord) -> dict[str, Any]:
    found, fits = attacked.found, record.fits
    worst = group([record]).worst
    return {
        "attack": attacked.result.attack,
        "scenario": record.scenario,
        "status": str(found.status),
        "loss": number(found.loss),
        # Targets at every place are the private text itself.
        "labels": None if found.targets is None or found.targets.ndim > 1 else found.targets.tolist(),
        "evaluations": found.evaluations,
        "notes": record.notes,
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
            "baselines": dict(worst.baselines),
            "best_null": worst.best_null,
            "gain": None if worst.gain is None else number(worst.gain),
        },
    }


def _tokens_entry(found: Reconstruction, record: CellRecord, *, show_ids: bool) -> dict[str, Any]:
    """How many tokens were found and how many of them are right; which ones only where private data may be shown."""
    if found.tokens is None:
        return {}
    told = {"found": len(found.tokens), "vocabulary": found.vocabulary, "words": tokens_words(record) or None}
    return {"tokens": told | ({"ids": found.tokens.tolist()} if show_ids else {})}


def _pictures(attacked: AttackedUpdate) -> tuple[Tensor, Tensor] | None:
    truth, found = attacked.result.truth, attacked.result.reconstruction
    return None if truth is None or found is None or truth.ndim != 4 else (truth, found.clamp(0, 1))


def _badness(record: CellRecord) -> tuple[int, float, float, float]:
    worst = group([record]).worst
    recall = max((float(value) for value in record.column("token_recall") if value is not None), default=0.0)
    return worst.badness if worst else (-1, recall, 0.0, 0.0)


def _exit_code(done: list[AttackedFile], summary: Summary) -> int:
    """1 a leak above the gate, else 4 a bad file, else 3 a result that is no evidence, else 0."""
    code = 0 if summary.verdict is None else summary.verdict.exit_code or 0
    if code == 1:
        return code
    if any(one.is_bad for one in done):
        return _BAD_FILE
    return 3 if code == 3 or any(one.record.status != "ok" for one in done) else 0
