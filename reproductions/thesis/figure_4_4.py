"""Ren's thesis, Figure 4.4: accuracy over rounds, FedAvg above, FedBoosting below."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, Results
from leakscope.reproduction.drawing import Drawing
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.by_seed import judge_seeds
from reproductions.thesis.text import (
    BOTH,
    NOTES,
    SCENARIO,
    SHARED,
    STAND_INS,
    at_passes,
    draw_curves,
    make_scales,
    text_cell,
)

NAME = "thesis/figure-4-4"
METHODS = ("FedAvg", "FedBoosting")
EPOCHS = (1, 3)


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Both strategies at every batch size and number of local epochs, as in Table 4.1."""
    for seed in scale.seeds:
        for batch in scale.options["batches"]:
            for epochs in EPOCHS:
                for method in METHODS:
                    tags = {"method": method, "data": BOTH, "batch": batch, "epochs": epochs}
                    yield text_cell(scale, tags, method=method, batch=batch, epochs=epochs, seed=seed)


def height(results: Results, **tags: str | int) -> float | None:
    """Mean height of the curves with these tags, after every three passes over the words."""
    chosen = results.where(**tags)
    if not len(chosen) or not all(one.is_ok for one in chosen):
        return None
    curves = [
        at_passes(list(one.values["accuracies"]), int(one.cell.tags["epochs"]), every=max(EPOCHS)) for one in chosen
    ]
    points = [float(value) for curve in curves for value in curve if value is not None]
    return fmean(points) if points else None


def behind(results: Results, method: str) -> float | None:
    """How far the curves with three local epochs lie below those with one."""
    one, three = (height(results, method=method, epochs=epochs) for epochs in EPOCHS)
    return None if one is None or three is None else one - three


def small_behind(results: Results, method: str) -> float | None:
    """How far the curves with the smallest batches lie below those with the largest."""
    batches = results.tags("batch")
    small, large = (height(results, method=method, batch=str(batch)) for batch in (batches[0], batches[-1]))
    return None if small is None or large is None or len(batches) < 2 else large - small


def _spared(results: Results) -> float | None:
    average, boosted = (behind(results, method) for method in METHODS)
    return None if average is None or boosted is None else average - boosted


def _figures(results: Results) -> list[Drawing]:
    return [
        draw_curves(
            results.where(method=method),
            title=f"Words read over passes, {method}",
            name=method.lower(),
            legend=("batch", "epochs"),
        )
        for method in METHODS
    ]


UNIT = "share of words, mean height"
RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Figure 4.4",
    title="accuracy over rounds by batch size and local epochs",
    scenario=SCENARIO,
    claims=(
        Claim(
            "fedavg-falls-behind-by-epochs",
            "FedAvg's curve with three local epochs lies below that with one, at as many passes over the words.",
            "always lower, by eye; 1E800B performs significantly better than 3E512B on IIIT5K",
            judge_seeds(lambda results: behind(results, "FedAvg"), unit=UNIT),
        ),
        Claim(
            "fedavg-falls-behind-by-batch",
            "FedAvg's curve with the smallest batches lies below that with the largest.",
            "always lower, by eye",
            judge_seeds(lambda results: small_behind(results, "FedAvg"), unit=UNIT),
        ),
        Claim(
            "boosting-does-not",
            "FedBoosting's curves fall behind by three local epochs less than FedAvg's.",
            "do not have such an issue, by eye",
            judge_seeds(_spared, unit=UNIT),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Figure 4.4",
            f"{method}, {epochs}E{batch}B",
            "IIIT5K at the end",
            None,
            "%",
            metric="accuracy",
            tags={"method": method, "batch": batch, "epochs": epochs},
            factor=100,
        )
        for method in METHODS
        for batch in ("256", "512", "800")
        for epochs in EPOCHS
    ),
    scales=make_scales(smoke=0.01, cpu=0.1, trainings=0.1),
    cells=cells,
    figures=_figures,
    stand_ins=STAND_INS,
    shares=SHARED,
    notes=(*NOTES, "Drawn over passes, not rounds: a round of three local epochs is three passes."),
)
