"""The work of `leakscope reproduce`: list, price, run, and leave behind what came of it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leakscope.errors import InconclusiveError, MissingDataError, MissingExtraError
from leakscope.files import write_atomic
from leakscope.reproduction.claims import NOT_RUN, write_claims
from leakscope.reproduction.page import render_page
from leakscope.reproduction.recipe import PaperRecipe
from leakscope.reproduction.run import Reproduced, run_folder, run_recipe
from leakscope.reproduction.stored import describe, draw, read_result, write_result
from leakscope.runner.events import show_events
from leakscope.text import printable

PAGE, RESULT = "report.html", "result.json"


def show_list(recipes: Sequence[PaperRecipe], root: Path, *, as_json: bool) -> str:
    """Every reproduction with its claims, its price and what was stored of it."""
    rows = [_describe_recipe(recipe, root) for recipe in recipes]
    if as_json:
        return json.dumps(rows, indent=1, ensure_ascii=False)
    width = max((len(row["name"]) for row in rows), default=0)
    lines = [
        f"{row['name']:<{width}}  {row['item']}: {row['title']}; {len(row['claims'])} "
        f"claim{'s' if len(row['claims']) > 1 else ''}; about {row['minutes']['cpu']:g} min at cpu; {row['cpu']}"
        for row in rows
    ]
    return "\n".join([*lines, f"{len(rows)} reproductions"])


def _describe_recipe(recipe: PaperRecipe, root: Path) -> dict[str, Any]:
    stored = read_result(root, recipe, "cpu")
    verdicts = NOT_RUN if stored is None else ", ".join(one["verdict"] for one in stored["claims"])
    return {
        "name": recipe.name,
        "item": recipe.item,
        "title": recipe.title,
        "paper": recipe.paper.citation,
        "scenario": recipe.scenario,
        "claims": [{"id": one.id, "statement": one.statement, "reported": one.reported} for one in recipe.claims],
        "numbers": len(recipe.numbers),
        "minutes": {scale.name: scale.minutes for scale in recipe.scales},
        "stand_ins": dict(recipe.stand_ins),
        "cpu": verdicts,
    }


def show_price(recipes: Sequence[PaperRecipe], root: Path, *, scale: str, workers: int | None, as_json: bool) -> str:
    """Cells and minutes: measured by a stored run where there is one, else what the recipe says."""
    count = workers or os.cpu_count() or 1
    rows = []
    for recipe in recipes:
        stored = read_result(root, recipe, scale)
        minutes = recipe.scale(scale).minutes if stored is None else float(stored["minutes"])
        cells = len(list(recipe.cells(recipe.scale(scale))))
        rows.append({"name": recipe.name, "cells": cells, "minutes": minutes, "measured": stored is not None})
    total = sum(row["minutes"] for row in rows)
    if as_json:
        return json.dumps({"scale": scale, "workers": count, "minutes": total, "reproductions": rows}, indent=1)
    lines = [
        f"{row['name']}: {row['cells']} cells, {_show_minutes(row['minutes'])} of one core "
        f"({'measured' if row['measured'] else 'estimated'})"
        for row in rows
    ]
    return "\n".join([*lines, f"in all {_show_minutes(total)} of one core, {_show_minutes(total / count)} on {count}"])


def _show_minutes(minutes: float) -> str:
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.2g} min"


def run_all(
    recipes: Sequence[PaperRecipe],
    root: Path,
    out: Path,
    *,
    scale: str,
    workers: int | None,
    timeout: float | None,
    store: bool,
    retry_failed: bool,
    quiet: bool,
    as_json: bool,
    everything: Mapping[str, PaperRecipe],
) -> tuple[str, int]:
    """Run one reproduction after the other; what is printed, and the exit code."""
    told: list[dict[str, Any]] = []
    lines: list[str] = []
    code = 0
    for recipe in recipes:
        try:
            with show_events(quiet=quiet) as listener:
                found = run_recipe(
                    recipe,
                    scale,
                    out,
                    root=root,
                    workers=workers or os.cpu_count() or 1,
                    timeout=timeout,
                    retry_failed=retry_failed,
                    on_event=listener,
                )
        except (MissingDataError, MissingExtraError) as error:
            if len(recipes) == 1:
                raise
            # Of many, the others still run; the code says that something is missing.
            lines += [f"{recipe.name}: not run: {printable(str(error).splitlines()[0], most=400)}", ""]
            code = InconclusiveError.exit_code
            continue
        stopped = found.sweep is not None and found.sweep.interrupted
        page = _keep(found, out)
        if store and found.is_complete:
            write_result(found, root)
            write_claims(root, everything)
        told.append(describe(found))
        lines += [*show(found), f"report: {printable(page)}", ""]
        if stopped:
            code = 128 + ((found.sweep.signal if found.sweep else 0) or signal.SIGINT)
            break
        if found.unexplained:
            code = InconclusiveError.exit_code
    return (json.dumps(told, indent=1, ensure_ascii=False) if as_json else "\n".join(lines).rstrip("\n")), code


def _keep(found: Reproduced, out: Path) -> Path:
    folder = run_folder(found.recipe, found.scale.name, out)
    # Recipes that share cells have a page each.
    own = "" if not found.recipe.shares else f"{found.recipe.name.rpartition('/')[2]}."
    write_atomic(folder / f"{own}{RESULT}", (json.dumps(describe(found), indent=1, ensure_ascii=False) + "\n").encode())
    for drawing in draw(found):
        write_atomic(folder / f"{own}{drawing.name}.svg", drawing.as_file().encode())
    return write_atomic(folder / f"{own}{PAGE}", render_page(found).encode())


def show(found: Reproduced) -> list[str]:
    """One reproduction for people: numbers, verdicts, and what did not end well."""
    told = describe(found)
    settings = ", ".join(f"{name} {value}" for name, value in told["settings"].items())
    lines = [f"{told['recipe']} ({told['item']}), scale {told['scale']}, scenario {told['scenario']}: {settings}"]
    lines += [f"  victims {name}: {' '.join(map(str, places))}" for name, places in told["victims"].items()]
    for one in told["numbers"]:
        paper = "–" if one["paper"] is None else f"{one['paper']:g}"
        ours = "not measured" if "ours" not in one else _show_number(one["ours"], one["interval"], one["n"])
        lines.append(f"  {one['row']} | {one['column']}: paper {paper} {one['unit']}, ours {ours}")
    lines += [f"  {_show_claim(one, is_evidence=told['is_evidence'])}" for one in told["claims"]]
    cells = told["cells"]
    lines.append(f"  {cells['ok']} of {cells['total']} cells ok, {told['minutes']:g} min of one core")
    lines += [f"  {one['status']}: {one['cell']}: {one['reason']}" for one in cells["others"] if not one["expected"]]
    return lines


def _show_claim(one: Mapping[str, Any], *, is_evidence: bool) -> str:
    if not is_evidence:
        return f"no evidence (smoke): {one['statement']}"
    effect = "" if one["effect"] is None else f" {_show_number(one['effect'], one['interval'], one['n'])} {one['unit']}"
    known = f" (known: {one['fails']})" if one["fails"] else ""
    return f"{one['verdict'].upper()}:{effect}: {one['statement']}{known} {one['note']}".rstrip()


def _show_number(value: float, interval: Sequence[float] | None, n: int) -> str:
    between = "" if interval is None else f" [{interval[0]:.4g}, {interval[1]:.4g}]"
    return f"{value:.4g}{between}, n = {n}"
