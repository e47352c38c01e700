"""Results as small JSON: what a table needs and nothing else, so that machines can share the work."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from leakscope.errors import BadInputError
from leakscope.files import write_atomic
from leakscope.regular_files import read_file
from leakscope.reproduction.find import FOLDER
from leakscope.reproduction.recipe import PaperRecipe
from leakscope.reproduction.run import Reproduced
from leakscope.software import software

RESULTS = "results"
SCHEMA = 1
_LARGEST = 5_000_000
_MOST_FAILURES = 40


def describe(found: Reproduced) -> dict[str, Any]:
    """Scalars, intervals, versions, seeds and victims of a finished reproduction; no picture, no path."""
    recipe, scale = found.recipe, found.scale
    return {
        "schema": SCHEMA,
        "recipe": recipe.name,
        "item": recipe.item,
        "title": recipe.title,
        "scale": scale.name,
        "is_evidence": scale.is_evidence,
        "scenario": recipe.scenario,
        "settings": scale.settings(),
        "victims": _victims(found),
        "stand_ins": dict(recipe.stand_ins) if scale.name != "paper" else {},
        "legacy_metric": recipe.legacy_metric,
        "software": software(),
        "cells": _cells(found),
        "numbers": _numbers(found),
        "claims": _claims(found),
        "minutes": round(found.minutes, 2),
        "command": recipe.command(scale.name),
    }


def write_result(found: Reproduced, root: Path) -> list[Path]:
    """Keep the result in the checkout, figures beside it; returns the files."""
    path = result_path(root, found.recipe, found.scale.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(describe(found), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    written = [write_atomic(path, text.encode())]
    for drawing in draw(found):
        figure = path.with_name(f"{path.name.removesuffix('.json')}.{drawing.name}.svg")
        written.append(write_atomic(figure, drawing.as_file().encode()))
    # Public results, and files of the checkout: readable as all others there.
    for one in written:
        one.chmod(0o644)
    return written


def draw(found: Reproduced) -> list[Any]:
    """The recipe's figures."""
    return [] if found.recipe.figures is None else list(found.recipe.figures(found.results))


def result_path(root: Path, recipe: PaperRecipe, scale: str) -> Path:
    """Where the checkout keeps it."""
    paper, item = recipe.name.split("/")
    return root / FOLDER / RESULTS / paper / f"{item.replace('-', '_')}.{scale}.json"


def read_result(root: Path, recipe: PaperRecipe, scale: str) -> dict[str, Any] | None:
    """The stored result; None where there is none.

    Raises:
        BadInputError: the file is not one of ours.
    """
    path = result_path(root, recipe, scale)
    if not path.is_file():
        return None
    try:
        found = json.loads(read_file(path, most=_LARGEST))
        if found["schema"] != SCHEMA or found["recipe"] != recipe.name or found["scale"] != scale:
            raise ValueError("it is of something else")
    except (ValueError, LookupError, TypeError) as error:
        raise BadInputError(
            f"{path.relative_to(root)} is not the result of {recipe.name} at scale {scale} ({error}); remove it and "
            "run the reproduction again"
        ) from error
    return found


def _victims(found: Reproduced) -> dict[str, list[list[int]]]:
    """Places in each data set, once."""
    victims: dict[str, list[list[int]]] = {}
    for one in found.results:
        data = str(one.cell.spec.get("data", "examples"))
        for batch in one.cell.victims:
            if batch not in victims.setdefault(data, []):
                victims[data].append(batch)
    return victims


def _cells(found: Reproduced) -> dict[str, Any]:
    failed = [one for one in found.results if not one.is_ok]
    return {
        "total": len(found.results),
        "ok": len(found.results) - len(failed),
        "others": [
            {"cell": one.cell.name, "status": one.status, "reason": one.reason, "expected": one.is_explained}
            for one in failed[:_MOST_FAILURES]
        ],
        "unexplained": len(found.unexplained),
    }


def _numbers(found: Reproduced) -> list[dict[str, Any]]:
    rows = []
    for number, ours in found.rows:
        row = {"where": number.where, "row": number.row, "column": number.column, "unit": number.unit}
        row |= {"paper": number.value, "paper_spread": number.spread, "why_not": number.why_not}
        if ours is not None:
            row |= {"ours": ours.value, "interval": _interval(ours.interval), "n": ours.n}
        rows.append(row)
    return rows


def _claims(found: Reproduced) -> list[dict[str, Any]]:
    rows = []
    for claim, verdict in found.verdicts:
        told = {"id": claim.id, "statement": claim.statement, "reported": claim.reported, "fails": claim.fails}
        told |= {"verdict": verdict.outcome, "effect": _finite(verdict.effect), "interval": _interval(verdict.interval)}
        rows.append(told | {"unit": verdict.unit, "n": verdict.n, "note": verdict.note})
    return rows


def _interval(interval: tuple[float, float] | None) -> list[float | None] | None:
    return None if interval is None else [_finite(bound) for bound in interval]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
