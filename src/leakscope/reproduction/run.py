"""Run a recipe: cells through the runner, verdicts and numbers from what they came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leakscope.errors import LeakscopeError
from leakscope.reproduction.keys import seal_cell
from leakscope.reproduction.recipe import Claim, ClaimVerdict, PaperNumber, PaperRecipe, RecipeScale
from leakscope.reproduction.results import CellResult, Results
from leakscope.reproduction.statistics import Estimate, mean_interval
from leakscope.reproduction.work import execute_cell
from leakscope.runner import NamedCall, SweepResult, run
from leakscope.runner.events import OnEvent
from leakscope.runner.worker import failure_of

CACHE = "networks"


@dataclass(frozen=True)
class Reproduced:
    """A recipe at one scale, with what its cells came to; `sweep` is None where they ran in this process."""

    recipe: PaperRecipe
    scale: RecipeScale
    results: Results
    sweep: SweepResult | None = None

    @property
    def verdicts(self) -> list[tuple[Claim, ClaimVerdict]]:
        """Every claim with its verdict."""
        return [(claim, claim.judge(self.results)) for claim in self.recipe.claims]

    @property
    def rows(self) -> list[tuple[PaperNumber, Estimate | None]]:
        """Every number of the paper with ours; None where nothing was measured for it."""
        return [(number, estimate(self.results, number)) for number in self.recipe.numbers]

    @property
    def is_complete(self) -> bool:
        """Whether every cell has a result."""
        return all(one.outcome is not None for one in self.results)

    @property
    def unexplained(self) -> list[CellResult]:
        """Cells that did not end well, and of which the recipe does not say why; at smoke those without values."""
        if not self.scale.is_evidence:
            return [one for one in self.results if not one.values]
        return [one for one in self.results if not one.is_explained]

    @property
    def minutes(self) -> float:
        """Minutes of one core that the cells took."""
        return sum(one.seconds for one in self.results) / 60


def estimate(results: Results, number: PaperNumber) -> Estimate | None:
    """Our number beside one of the paper's: the mean over all units, whatever way their cells ended."""
    if number.tags is None:
        return None
    units = results.units(number.metric, ended="any", **number.tags)
    return mean_interval([number.factor * value for value in units]) if units else None


def run_recipe(
    recipe: PaperRecipe,
    scale: str,
    out: Path,
    *,
    root: Path,
    workers: int = 1,
    timeout: float | None = None,
    retry_failed: bool = False,
    on_event: OnEvent | None = None,
) -> Reproduced:
    """Run every cell that `out` does not hold yet; after a crash or a kill the same call goes on."""
    chosen = recipe.scale(scale)
    cells = list(recipe.cells(chosen))
    folder = run_folder(recipe, scale, out)
    call = NamedCall.to(execute_cell, root=str(root), cache=str((folder / CACHE).absolute()))
    sweep = run(
        [seal_cell(cell) for cell in cells],
        call,
        folder,
        workers=min(workers, max(1, len(cells))),
        timeout=timeout,
        retry_failed=retry_failed,
        on_event=on_event,
    )
    found = tuple(CellResult(cell, outcome) for cell, outcome in zip(cells, sweep.outcomes, strict=True))
    return Reproduced(recipe, chosen, Results(found), sweep)


def run_here(recipe: PaperRecipe, scale: str, *, cells: Sequence[int] | None = None) -> Reproduced:
    """Run the cells one after the other in this process, and keep nothing: for tests and for writing a recipe."""
    chosen = recipe.scale(scale)
    planned = list(recipe.cells(chosen))
    kept = planned if cells is None else [planned[place] for place in cells]
    found = []
    for cell in kept:
        try:
            outcome = execute_cell(seal_cell(cell).spec)
        except LeakscopeError as error:
            outcome = failure_of(error)
        found.append(CellResult(cell, outcome))
    return Reproduced(recipe, chosen, Results(tuple(found)))


def run_folder(recipe: PaperRecipe, scale: str, out: Path) -> Path:
    """Where a recipe's cells are kept: its own folder, or that of the recipe it shares cells with."""
    return out / (recipe.shares or recipe.name) / scale
