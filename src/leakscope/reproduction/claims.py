"""reproductions/CLAIMS.md: every claim of every paper with its verdict, made from the stored results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leakscope.files import write_atomic
from leakscope.reproduction.find import FOLDER
from leakscope.reproduction.papers import PAPERS
from leakscope.reproduction.recipe import OUTCOMES, PaperRecipe
from leakscope.reproduction.stored import read_result

PAGE = "CLAIMS.md"
NOT_RUN = "not run yet"
# The largest setting that was run counts; smoke is no evidence and is never read.
_EVIDENCE = ("paper", "cpu")


def write_claims(root: Path, recipes: Mapping[str, PaperRecipe]) -> Path:
    """Make the page again."""
    path = write_atomic(root / FOLDER / PAGE, render_claims(root, list(recipes.values())).encode())
    path.chmod(0o644)
    return path


def render_claims(root: Path, recipes: Sequence[PaperRecipe]) -> str:
    """The page as Markdown: one table per paper, one line per claim."""
    rows = [(recipe, row) for recipe in recipes for row in _rows(root, recipe)]
    counts = Counter(row["verdict"] for _, row in rows)
    said = ", ".join(f"{counts[name]} {name}" for name in (*OUTCOMES, NOT_RUN) if counts[name])
    lines = [
        "# What holds",
        "",
        "Made by `leakscope reproduce` from `reproductions/results`; do not edit. A claim *holds* where the whole 95 % "
        "interval of the effect is on its side, *holds weakly* where only the estimate is, and *does not hold* where "
        "the estimate is on the other side. n counts independent units: victims, seeds or policies.",
        "",
        f"{len(rows)} claims: {said or 'none'}.",
    ]
    for key, paper in PAPERS.items():
        own = [(recipe, row) for recipe, row in rows if recipe.paper.key == key]
        if own:
            lines += ["", f"## {paper.citation}", "", *_table(own)]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[tuple[PaperRecipe, Mapping[str, Any]]]) -> list[str]:
    lines = ["| item | claim | the paper | verdict | effect | setting | command |", "|---|---|---|---|---|---|---|"]
    for recipe, row in rows:
        fields = (recipe.item, row["statement"], row["reported"], row["shown"], row["effect"], row["setting"])
        lines.append(f"| {' | '.join(_escape(one) for one in fields)} | `{row['command']}` |")
    return lines


def _rows(root: Path, recipe: PaperRecipe) -> list[dict[str, str]]:
    stored = next(filter(None, (read_result(root, recipe, scale) for scale in _EVIDENCE)), None)
    judged = {} if stored is None else {one["id"]: one for one in stored["claims"]}
    rows = []
    for claim in recipe.claims:
        told = judged.get(claim.id)
        row = {"statement": claim.statement, "reported": claim.reported, "verdict": NOT_RUN, "shown": NOT_RUN}
        row |= {"effect": "–", "setting": "–", "command": recipe.command("cpu")}
        if stored is not None and told is not None:
            row |= {"verdict": told["verdict"], "effect": _effect(told), "setting": _setting(stored)}
            row |= {"shown": _show(told), "command": stored["command"]}
        rows.append(row)
    return rows


def _show(told: Mapping[str, Any]) -> str:
    why = "; ".join(filter(None, (told["fails"] if told["verdict"] != "holds" else "", _note(told))))
    return f"**{told['verdict']}**" + (f": {why}" if why else "")


def _note(told: Mapping[str, Any]) -> str:
    return str(told["note"])


def _effect(told: Mapping[str, Any]) -> str:
    if told["effect"] is None:
        return "–"
    between = "" if told["interval"] is None else " [{:.3g}, {:.3g}]".format(*told["interval"])
    return f"{told['effect']:.3g} {told['unit']}{between}, n = {told['n']}"


def _setting(stored: Mapping[str, Any]) -> str:
    settings = stored["settings"]
    parts = [f"scale {stored['scale']}", f"scenario {stored['scenario']}"]
    parts += [", ".join(map(str, settings[name])) for name in ("models", "data") if settings.get(name)]
    parts += [f"{settings[name]} {name}" for name in ("victims", "steps") if settings.get(name)]
    parts += [f"{one} for {name}" for name, one in stored["stand_ins"].items()]
    return f"{'; '.join(parts)}; {stored['cells']['ok']} of {stored['cells']['total']} cells ok"


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
