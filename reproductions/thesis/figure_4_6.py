"""Ren's thesis, Figure 4.6: FedBoosting with and without the training losses in its weights."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, Results
from leakscope.reproduction.drawing import Drawing
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.by_seed import above_by_seed, judge_seeds, mean_of
from reproductions.thesis.text import NOTES, SCENARIO, SHARED, STAND_INS, draw_curves, make_scales, text_cell

NAME = "thesis/figure-4-6"
METHODS = {"training and validation": "FedBoosting", "validation only": "FedBoosting, validation only"}
BOTH_LOSSES, VALIDATION = METHODS
PANELS = ("256", "800")


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Either weights at the two batch sizes of the panels, one local epoch."""
    for seed in scale.seeds:
        for batch in (one for one in scale.options["batches"] if one in PANELS):
            for weights, method in METHODS.items():
                tags = {"weights": weights, "batch": batch, "epochs": 1}
                yield text_cell(scale, tags, method=method, batch=batch, epochs=1, seed=seed)


def _above(batch: str):
    return above_by_seed("accuracy", {"weights": BOTH_LOSSES, "batch": batch}, {"weights": VALIDATION, "batch": batch})


def _plain_above_half(results: Results) -> float | None:
    """How far above a half the client of Synth90K counts."""
    weight = mean_of(results, "first_weight", weights=BOTH_LOSSES)
    return None if weight is None else weight - 0.5


def _plain_below_half(results: Results) -> float | None:
    """How far below a half it counts where training losses are left out."""
    weight = mean_of(results, "first_weight", weights=VALIDATION)
    return None if weight is None else 0.5 - weight


def _figures(results: Results) -> list[Drawing]:
    return [
        draw_curves(
            results.where(batch=batch), title=f"Words read, batch {batch}", name=f"batch-{batch}", legend=("weights",)
        )
        for batch in results.tags("batch")
    ]


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Figure 4.6",
    title="FedBoosting with and without training losses in its weights",
    scenario=SCENARIO,
    claims=(
        Claim(
            "training-losses-help-small-batches",
            "With training losses in the weights the model reads more words, batch 256.",
            "always better; without them convergence is delayed until round 24, by eye",
            _above("256"),
        ),
        Claim(
            "training-losses-help-large-batches",
            "With training losses in the weights the model reads more words, batch 800.",
            "outperforms all the time, by eye",
            _above("800"),
        ),
        Claim(
            "synth90k-counts-more",
            "With training losses the client of Synth90K counts more than the other.",
            "about 55 against 45 %",
            judge_seeds(_plain_above_half, unit="weight above a half"),
        ),
        Claim(
            "synth90k-counts-less-without",
            "Without training losses the client of Synth90K counts less than the other.",
            "smaller than SynthText's; no number",
            judge_seeds(_plain_below_half, unit="weight below a half"),
        ),
    ),
    numbers=(
        *(
            PaperNumber(
                "Figure 4.6",
                f"{weights}, batch {batch}",
                "IIIT5K at the end",
                None,
                "%",
                metric="accuracy",
                tags={"weights": weights, "batch": batch},
                factor=100,
            )
            for batch in PANELS
            for weights in METHODS
        ),
        PaperNumber(
            "section 4.3.2.3",
            BOTH_LOSSES,
            "weight of Synth90K",
            55,
            "%",
            metric="first_weight",
            tags={"weights": BOTH_LOSSES},
            factor=100,
        ),
        PaperNumber(
            "section 4.3.2.3",
            "training losses alone",
            "weight of Synth90K",
            80,
            "%",
            metric="first_weight",
            why_not="weights without validation are not part of the method",
        ),
    ),
    scales=make_scales(smoke=0.01, cpu=4, trainings=8),
    cells=cells,
    figures=_figures,
    stand_ins=STAND_INS,
    shares=SHARED,
    notes=NOTES,
)
