"""Ren's thesis, Table 3.2: pictures that GRNN draws over its iterations, behind a network after one iteration."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import (
    Claim,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    call_cell,
    every,
    reaches,
)
from leakscope.reproduction.drawing import Drawing
from leakscope.reproduction.papers import THESIS
from leakscope.reproduction.recipe import Tag
from reproductions.thesis.curves import draw_runs
from reproductions.thesis.setting import (
    CPU_TEST,
    ENDINGS,
    PUBLISHED,
    RECOGNISABLE,
    SCHEDULES,
    SIDE,
    STAND_INS,
    attacked,
    columns_of,
    draw,
    paper_scale,
    reads,
    sets_of,
    smoke_scale,
    train_once,
)
from reproductions.thesis.verdicts import rises

NAME = "thesis/table-3-2"
COLUMNS = ("MNIST", "CIFAR-100", "LFW")
# The release attacks an untrained network, the text one after an iteration.
_ERROR = "mean squared error of the picture"
STATES = ("untrained", "one iteration")


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """One run each, watched; both states on the same victims."""
    side = scale.options["side"]
    for column, data in columns_of(scale):
        for victim, batch in enumerate(draw(NAME, scale, data)):
            for state in scale.options.get("states", STATES):
                trained = train_once(data, size=side) if state == "one iteration" else None
                yield call_cell(
                    {"data": column, "state": state, "victim": victim},
                    "reproductions.thesis.traces:watch_attack",
                    reads=[reads(data, [batch], size=side)],
                    model=attacked(scale, victim, trained=trained),
                    data=data,
                    indices=[batch],
                    attack=scale.options["attacks"]["GRNN"],
                    size=side,
                    seed=victim,
                    pictures=victim == 0,
                    expected=ENDINGS,
                )


def _figures(results: Results) -> list[Drawing]:
    groups: dict[str, dict[str, Tag]] = {
        f"{column}, {state}": {"data": column, "state": state}
        for column in results.tags("data")
        for state in results.tags("state")
    }
    return [draw_runs(results, groups, "mse", title="How the picture comes nearer", label=_ERROR, name="error")]


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 3.2",
    title="what GRNN draws after every tenth of its iterations",
    scenario="C",
    claims=(
        Claim(
            "nearer-with-iterations",
            "The picture comes nearer to the truth as the iterations go on, early and late.",
            "recovered gradually as the iterations increase, by eye",
            every(
                *(
                    rises(f"psnr@{first}", f"psnr@{last}", unit="dB", state=state)
                    for first, last in ((0, 10), (10, 50), (50, 100))
                    for state in STATES
                )
            ),
        ),
        Claim(
            "recognisable-at-the-start-of-training",
            "A gradient of the very first iteration gives recognisable pictures away.",
            "pictures of all three data sets, by eye",
            every(*(reaches("ssim", RECOGNISABLE, unit="SSIM", state=state) for state in STATES)),
        ),
    ),
    numbers=tuple(
        PaperNumber("Table 3.2", column, state, None, "dB", metric="psnr", tags={"data": column, "state": state})
        for column in COLUMNS
        for state in STATES
    ),
    scales=(
        smoke_scale(),
        RecipeScale(
            "cpu",
            6,
            victims=3,
            among=800,
            steps=1_000,
            models=("lenet-grnn",),
            data=sets_of(COLUMNS),
            options={
                "columns": list(COLUMNS),
                "among": CPU_TEST,
                "side": SIDE,
                "attacks": {"GRNN": "grnn:steps=1000"},
            },
        ),
        paper_scale(
            60,
            COLUMNS,
            victims=20,
            among=2_000,
            attacks={"GRNN": PUBLISHED["GRNN"]},
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins=STAND_INS,
    notes=(SCHEDULES, "The thesis prints pictures and no numbers here.", "Pictures run from the last iterate back."),
)
