"""Ren's thesis, chapter 6: do DLG and GRNN rebuild pictures from a part of the gradient?"""

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
)
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.setting import SCHEDULES, attacked, draw, reads, smoke_scale
from reproductions.thesis.verdicts import above_by_unit, rises

NAME = "thesis/partial-gradients"
METHODS = ("DLG", "GRNN")
# What the server sees of the LeNet of chapter 5: layers by name, nothing for all.
PARTS: dict[str, list[str]] = {
    "all": [],
    "without the first layer": ["conv2", "conv3", "fc"],
    "convolutions": ["conv1", "conv2", "conv3"],
    "first layer": ["conv1"],
    "last layer": ["fc"],
}
SOME = list(PARTS)[1:]


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every part and both methods on the same victims."""
    data = scale.data[0]
    for victim, batch in enumerate(draw(NAME, scale, data)):
        for part, names in scale.options.get("parts", PARTS).items():
            for method in METHODS:
                yield call_cell(
                    {"method": method, "part": part, "victim": victim},
                    "reproductions.thesis.partial:rebuild_from_part",
                    reads=[reads(data, [batch], size=None)],
                    names=names,
                    model=attacked(scale, victim),
                    data=data,
                    indices=[batch],
                    attack=scale.options["attacks"][method],
                    seed=victim,
                    pictures=victim == 0,
                )


def _figures(results: Results) -> list[Drawing]:
    return [
        compare_groups(
            results.where(method=method),
            "psnr",
            group="part",
            title=f"PSNR by what is seen of the gradient, {method}",
            label="PSNR (dB)",
            name=f"psnr-{method.lower()}",
        )
        for method in METHODS
    ]


def _leaks(method: str):
    return every(
        *(rises("baseline_psnr", "psnr", unit="dB above a blind guess", method=method, part=one) for one in SOME)
    )


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="chapter 6, section 6.2, item 3",
    title="pictures from a part of the gradient",
    scenario="C, of some layers alone",
    claims=(
        Claim(
            "dlg-from-a-part",
            "DLG rebuilds more than a blind guess from every part of the gradient that was tried.",
            "able to reconstruct from a partial gradient; neither parts nor numbers are given",
            _leaks("DLG"),
        ),
        Claim(
            "grnn-from-a-part",
            "GRNN rebuilds more than a blind guess from every part of the gradient that was tried.",
            "able to reconstruct from a partial gradient; neither parts nor numbers are given",
            _leaks("GRNN"),
        ),
        Claim(
            "some-part-suffices",
            "Without the gradient of the first layer both methods still rebuild more than a blind guess.",
            "partial gradient leakage is feasible",
            every(
                *(
                    rises("baseline_psnr", "psnr", unit="dB", method=method, part="without the first layer")
                    for method in METHODS
                )
            ),
        ),
        Claim(
            "the-whole-gives-more",
            "From the whole gradient pictures are better than from any part of it.",
            "not claimed in words: asked as the way to other reasons of leakage",
            every(*(above_by_unit("psnr", {"part": "all"}, {"part": part}, per=("victim",)) for part in SOME)),
        ),
    ),
    numbers=tuple(
        PaperNumber("chapter 6", method, part, None, tags={"method": method, "part": part})
        for method in METHODS
        for part in PARTS
    ),
    scales=(
        smoke_scale(parts={"first layer": ["0"]}),
        RecipeScale(
            "cpu",
            8,
            victims=5,
            among=800,
            steps=400,
            models=("lenet-dlg",),
            data=("cifar10",),
            options={"attacks": {"GRNN": "grnn:steps=400", "DLG": "dlg:steps=60,retries=1"}},
        ),
        RecipeScale(
            "paper",
            500,
            victims=40,
            among=10_000,
            steps=1_000,
            models=("lenet-dlg",),
            data=("cifar10",),
            options={"attacks": {"GRNN": "grnn:steps=1000,schedule=paper", "DLG": "dlg:steps=300,retries=3"}},
        ),
    ),
    cells=cells,
    figures=_figures,
    notes=(
        "The LeNet is that of chapter 5, whose experiments showed it: DLG's, without pooling, untrained.",
        "The thesis names no part; ours are chosen before any was run.",
        SCHEDULES,
    ),
)
