"""Recipes of the checkout: they are no part of the installed package."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import leakscope
from leakscope.errors import UsageError, suggest
from leakscope.reproduction.papers import PAPERS
from leakscope.reproduction.recipe import PaperRecipe

FOLDER = "reproductions"
ALL = "all"


def find_checkout() -> Path:
    """The folder that holds `reproductions`: the current one or one above it, else that of an editable install.

    Raises:
        UsageError: leakscope was installed without its repository.
    """
    here = Path.cwd()
    for root in (here, *here.parents, Path(leakscope.__file__).resolve().parents[2]):
        if all((root / FOLDER / key / "__init__.py").is_file() for key in PAPERS):
            return root
    raise UsageError(
        f"there is no folder {FOLDER} with recipes here; they come with the repository, not with the package: clone it "
        "and run the command there"
    )


def find_recipes(root: Path | None = None) -> dict[str, PaperRecipe]:
    """Every recipe of the checkout by name, in the order of papers and items."""
    base = find_checkout() if root is None else root
    if str(base) not in sys.path:
        sys.path.insert(0, str(base))
    found: dict[str, PaperRecipe] = {}
    for key in PAPERS:
        for path in sorted((base / FOLDER / key).glob("*.py"), key=lambda path: _order(path.stem)):
            module = vars(importlib.import_module(f"{FOLDER}.{key}.{path.stem}"))
            if (recipe := module.get("RECIPE")) is not None:
                _check(recipe, module["__name__"])
                found[recipe.name] = recipe
    return found


def choose_recipes(names: list[str], known: dict[str, PaperRecipe]) -> list[PaperRecipe]:
    """The named recipes; `all` is all of them, and a paper's folder all of that paper."""
    chosen: dict[str, PaperRecipe] = {}
    for name in names:
        matching = {key: one for key, one in known.items() if name in (ALL, key, one.paper.key)}
        if not matching:
            raise UsageError(f"there is no reproduction {name!r}.{suggest(name, [ALL, *PAPERS, *known])}")
        chosen |= matching
    return list(chosen.values())


def _check(recipe: object, module: str) -> None:
    if not isinstance(recipe, PaperRecipe) or recipe.module != module:
        raise UsageError(f"{module}.RECIPE must be a PaperRecipe named after its file, got {type(recipe).__name__}")


def _order(stem: str) -> tuple[tuple[int, str], ...]:
    """table_2 before table_10, figure_6 before figure_6c."""
    found = (re.fullmatch(r"(\d*)(.*)", part) for part in stem.split("_"))
    return tuple((int(one[1] or -1), one[2]) for one in found if one is not None)
