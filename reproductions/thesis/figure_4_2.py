"""Ren's thesis, Figure 4.2: what FedAvg, FedBoosting and central training decide in the plane."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from leakscope.reproduction import (
    Claim,
    ClaimVerdict,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    above,
    judge_estimate,
    training,
    training_cell,
    untestable,
)
from leakscope.reproduction.drawing import Drawing, draw_boundaries
from leakscope.reproduction.papers import THESIS
from leakscope.reproduction.statistics import paired_interval
from leakscope.types import LocalTraining

NAME = "thesis/figure-4-2"
# The released weights, and those of the text: the two contradict each other.
METHODS = {
    "FedAvg": {"strategy": "fedavg"},
    "FedBoosting": {"strategy": "fedboosting:formula=released"},
    "FedBoosting (text)": {"strategy": "fedboosting:formula=thesis"},
    "central": {"central": True},
}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every method on the same points, one task for each seed; batches of 8, one epoch, Adam at 0.003."""
    local = LocalTraining(lr=0.003, epochs=1, batch_size=8, optimiser="adam", shuffle=True)
    for seed in scale.seeds:
        for method, options in METHODS.items():
            how = training(
                "two-gaussians",
                rounds=scale.steps,
                local=local,
                clients=2,
                examples=scale.options["samples"],
                seed=seed,
                **options,
            )
            yield training_cell({"method": method, "seed": seed}, model=None, how=how)


def _nearer(results: Results) -> ClaimVerdict:
    """Share of the plane on which a method decides otherwise than central training: FedAvg's less FedBoosting's."""
    seeds = [seed for seed in results.tags("seed") if all(one.is_ok for one in results.where(seed=seed))]
    if len(seeds) < 2:
        return untestable("two seeds are the fewest", n=len(seeds))
    away = {
        method: [share_apart(_plane(results, method, seed), _plane(results, "central", seed)) for seed in seeds]
        for method in ("FedAvg", "FedBoosting")
    }
    return judge_estimate(paired_interval(away["FedAvg"], away["FedBoosting"]), unit="share of the plane")


def _smoother(results: Results) -> ClaimVerdict:
    """Length of the boundary, in cells: FedAvg's less FedBoosting's."""
    seeds = [seed for seed in results.tags("seed") if all(one.is_ok for one in results.where(seed=seed))]
    if len(seeds) < 2:
        return untestable("two seeds are the fewest", n=len(seeds))
    plain, boosted = ([boundary_length(_plane(results, name, seed)) for seed in seeds] for name in list(METHODS)[:2])
    return judge_estimate(paired_interval(plain, boosted), unit="cells of boundary")


def _plane(results: Results, method: str, seed: object) -> Tensor:
    return results.one(method=method, seed=seed).pictures["boundary"]  # type: ignore[arg-type]


def share_apart(one: Tensor, other: Tensor) -> float:
    """Share of the cells that two models decide differently."""
    return float((one != other).float().mean())


def boundary_length(plane: Tensor) -> float:
    """Number of neighbouring cells that are decided differently."""
    classes = plane.int()
    return float((classes.diff(dim=0) != 0).sum() + (classes.diff(dim=1) != 0).sum())


def _figures(results: Results) -> list[Drawing]:
    first = results.where(seed=results.tags("seed")[0])
    panels = {
        str(one.cell.tags["method"]): one.pictures["boundary"][::2, ::2].tolist() for one in first if one.pictures
    }
    return [draw_boundaries(panels, title="What models decide in the plane", name="boundaries")]


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Figure 4.2",
    title="decision boundaries of two clients in the plane whose data differ",
    scenario="no server attacks: a training",
    claims=(
        Claim(
            "boosting-above-fedavg",
            "FedBoosting classifies better than FedAvg.",
            "all models trained by FedBoosting outperform those trained by FedAvg; no numbers",
            above("accuracy", {"method": "FedBoosting"}, {"method": "FedAvg"}, unit="share"),
        ),
        Claim(
            "nearer-to-central",
            "FedBoosting's boundary is nearer to that of central training than FedAvg's is.",
            "much closer, by eye",
            _nearer,
        ),
        Claim(
            "smoother", "FedBoosting's boundary is smoother than FedAvg's.", "significantly smoother, by eye", _smoother
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 4.2", method, "accuracy", None, "%", metric="accuracy", tags={"method": method}, factor=100)
        for method in METHODS
    ),
    scales=(
        RecipeScale("smoke", 0.01, seeds=(0,), steps=1, data=("two-gaussians",), options={"samples": 40}),
        RecipeScale("cpu", 0.9, seeds=(0, 1, 2, 3, 4), steps=2, data=("two-gaussians",), options={"samples": 20_000}),
        RecipeScale("paper", 60, seeds=tuple(range(10)), steps=3, data=("two-gaussians",), options={"samples": 40_000}),
    ),
    cells=cells,
    figures=_figures,
    notes=("The thesis gives neither centres nor spreads of the Gaussians: ours are those of `two_gaussians`.",),
)
