"""ATS replication I, Figures 6a and 6b: the privacy score of every operation of the library by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leakscope.operations.library import LIBRARY, first_equal
from leakscope.reproduction import (
    Claim,
    ClaimVerdict,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    call_cell,
    draw_victims,
    judge_estimate,
    untestable,
)
from leakscope.reproduction.drawing import Drawing, draw_points
from leakscope.reproduction.papers import ATS_ONE
from reproductions.ats_one.table_1 import CIFAR, SMOKE_BLOCK
from reproductions.ats_policies import NUMBERS, policy_network
from reproductions.rankings import best_of, operation_scores, overlap_of_best

NAME = "ats_one/figure-6"
# Horizontal shift (9), brightness (9), brightness (6), contrast (7), contrast (6).
PUBLISHED = (3, 15, 26, 18, 1)
# Equal operations once, by their lowest number.
DIFFERENT = tuple(sorted({first_equal(number) for number in range(len(LIBRARY))}))


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every operation on the same pictures with the same noise and coins."""
    for setting in scale.options["blocks"]:
        yield from operation_cells(scale, setting, recipe=NAME)


def operation_cells(scale: RecipeScale, setting: Mapping[str, Any], *, recipe: str) -> Iterator[RecipeCell]:
    """One cell per operation, on the network of the search, which is trained without a policy."""
    pictures = draw_victims(recipe, scale.name, count=setting["victims"], among=setting["among"], data=setting["name"])
    places = [place for one in pictures for place in one]
    for number in scale.options.get("operations", DIFFERENT):
        yield call_cell(
            {"data": setting["data"], "model": setting["model"], "operation": number},
            "reproductions.ats_two.policy_scores:privacy",
            reads=[{"name": setting["name"], "split": "test", "indices": places, "size": setting.get("size")}],
            policies=[str(number)],
            data=setting["name"],
            indices=pictures,
            size=setting.get("size"),
            model=policy_network(setting, NUMBERS["None"], **setting.get("options", {})),
        )


def among_best(known: tuple[int, ...], *, best: int, least: int, **tags: str):
    """Whether at least `least` of `known` are among the `best`."""

    def judge(results: Results) -> ClaimVerdict:
        scores = operation_scores(results.where(**tags))
        if len(scores) < best or len(next(iter(scores.values()))) < 2:
            return untestable(f"{len(scores)} operations; a ranking needs {best} and two pictures")
        told = f"best: {', '.join(map(str, best_of(scores, best)))}"
        return judge_estimate(
            overlap_of_best(scores, known, best=best), least=least - 0.5, unit=f"of {best} best", note=told
        )

    return judge


def draw_operations(results: Results, known: tuple[int, ...], *, title: str, name: str, **tags: str) -> list[Drawing]:
    """S_pri by number, those that are known as the best in another colour."""
    scores = operation_scores(results.where(**tags))
    points = {number: sum(values) / len(values) for number, values in scores.items()}
    groups = {
        "published as the best": [(float(number), value) for number, value in points.items() if number in known],
        "others": [(float(number), value) for number, value in points.items() if number not in known],
    }
    drawn = {key: found for key, found in groups.items() if found}
    return [draw_points(drawn, title=title, x_label="number of the operation", y_label="S_pri", name=name)]


def _figures(results: Results) -> list[Drawing]:
    return [
        drawing
        for model in results.tags("model")
        for drawing in draw_operations(
            results,
            PUBLISHED,
            title=f"S_pri by operation, {model}",
            name=f"operations-{model}".lower(),
            model=str(model),
        )
    ]


CPU_RESNET = CIFAR | {"network": "resnet20-4", "victims": 6, "among": 800, "epochs": 2}
CPU_CONVNET = CIFAR | {
    "model": "ConvNet",
    "network": "convnet",
    "victims": 3,
    "among": 800,
    "epochs": 2,
    "examples": 160,
}
PAPER_TINY = {"epochs": 50, "batch_size": 128, "examples": 5_000, "decay_every": 489}
PAPER_BLOCKS = [
    CIFAR | {"model": model, "network": model.lower(), "victims": 100, "among": 10_000, **PAPER_TINY}
    for model in ("ResNet20-4", "ConvNet")
]
NAMES = {3: "horizontal shift (9)", 15: "brightness (9)", 26: "brightness (6)", 18: "contrast (7)", 1: "contrast (6)"}
RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_ONE,
    item="Figures 6a and 6b",
    title="S_pri of the library's operations, one at a time",
    scenario="no attack: a score that an attacker's gradients would have",
    claims=(
        Claim(
            "four-of-five",
            "At least four of the five operations published as the best are among our five best, on ResNet20-4.",
            "four overlap",
            among_best(PUBLISHED, best=5, least=4, model="ResNet20-4"),
        ),
        Claim(
            "four-of-five-convnet",
            "At least four of them are among our five best on ConvNet.",
            "four overlap",
            among_best(PUBLISHED, best=5, least=4, model="ConvNet"),
        ),
        Claim(
            "shift-is-best",
            "The horizontal shift by almost half of the picture is the best single operation.",
            "Gao et al. list it first",
            among_best((3,), best=1, least=1, model="ResNet20-4"),
        ),
    ),
    numbers=tuple(
        PaperNumber("Figure 6a", text, "S_pri", None, "", metric="privacy", tags={"operation": number})
        for number, text in NAMES.items()
    ),
    scales=(
        RecipeScale(
            "smoke", 0.01, options={"blocks": [SMOKE_BLOCK | {"victims": 2}], "operations": [0, 1, 3, 15, 26, 28]}
        ),
        # 28 operations: 6 pictures of 1 s on ResNet20-4, 3 of 2.8 s on ConvNet; networks of 46 and 42 s.
        RecipeScale("cpu", 8.5, options={"blocks": [CPU_RESNET, CPU_CONVNET]}),
        RecipeScale("paper", 200, options={"blocks": PAPER_BLOCKS}),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={"a network trained for 50 epochs on a tenth": "two epochs on the pictures at hand, 160 for ConvNet"},
    notes=(
        "The library's 50 numbers are 28 different operations: each is scored once. S_pri is that of the released "
        "code.",
        "n counts pictures; the interval is that of resampled pictures. All operations meet the same noise and coins.",
    ),
)
