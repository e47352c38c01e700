"""Ren's thesis, Table 4.2: the same words read by a FedAvg and by a FedBoosting recogniser."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from leakscope.data import decode_texts
from leakscope.report.svg import join, tag
from leakscope.reproduction import Claim, PaperNumber, PaperRecipe, RecipeCell, RecipeScale, Results
from leakscope.reproduction.drawing import Drawing
from leakscope.reproduction.papers import THESIS
from reproductions.thesis.by_seed import above_by_seed, judge_seeds
from reproductions.thesis.reading import spell
from reproductions.thesis.text import BOTH, NOTES, SCENARIO, SHARED, STAND_INS, make_scales, text_cell

NAME = "thesis/table-4-2"
METHODS = ("FedAvg", "FedBoosting")
EPOCHS = 3
SHOWN = 16


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Both strategies with three local epochs; the printed words were read at batch 512."""
    batch = "512" if "512" in scale.options["batches"] else "800"
    for seed in scale.seeds:
        for method in METHODS:
            tags = {"method": method, "data": BOTH, "batch": batch, "epochs": EPOCHS}
            yield text_cell(scale, tags, method=method, batch=batch, epochs=EPOCHS, seed=seed)


def read_right(texts: Tensor, targets: Tensor) -> list[bool]:
    """Whether each word is read without a mistake."""
    return [one == other for one, other in zip(spell(texts), spell(targets), strict=True)]


def won_share(ours: list[bool], others: list[bool]) -> float | None:
    """Of the words that one of two recognisers reads and the other does not, the share that is ours; None of none."""
    split = [left for left, right in zip(ours, others, strict=True) if left != right]
    return sum(split) / len(split) if split else None


def _won(results: Results) -> float | None:
    found = {method: results.where(method=method) for method in METHODS}
    if any(len(one) != 1 or not one.cells[0].is_ok for one in found.values()):
        return None
    right = {method: _right(one) for method, one in found.items()}
    return won_share(right["FedBoosting"], right["FedAvg"])


def _right(results: Results) -> list[bool]:
    kept = results.cells[0].pictures
    return read_right(kept["texts"], kept["targets"])


def _figures(results: Results) -> list[Drawing]:
    """Words that at least one of the two misreads, in the order of the test set: ours are not picked."""
    first = results.where(seed=results.tags("seed")[0])
    if any(not one.pictures for one in first) or len(first) != len(METHODS):
        return []
    average, boosted = (first.one(method=method).pictures for method in METHODS)
    targets = average["targets"]
    wrong = [
        place
        for place, rights in enumerate(
            zip(read_right(average["texts"], targets), read_right(boosted["texts"], targets), strict=True)
        )
        if not all(rights)
    ]
    rows = [("text", *METHODS)]
    chosen = torch.tensor(wrong[:SHOWN], dtype=torch.int64)
    columns = (decode_texts(one[chosen].long()) for one in (targets, average["texts"], boosted["texts"]))
    rows += list(zip(*columns, strict=True))
    parts = [
        tag("text", word or "–", x=60 + 200 * column, y=24 + 15 * row, class_="note")
        for row, words in enumerate(rows)
        for column, word in enumerate(words)
    ]
    said = "; ".join(" / ".join(words) for words in rows[1:])
    return [
        Drawing(
            "words", "The first words that one of them misreads", join(parts), f"Text / FedAvg / FedBoosting: {said}."
        )
    ]


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 4.2",
    title="words as FedAvg and FedBoosting read them, three local epochs",
    scenario=SCENARIO,
    claims=(
        Claim(
            "fewer-character-errors",
            "FedBoosting gets fewer characters wrong than FedAvg.",
            "18 words, chosen by the author: FedAvg misreads nearly all of them, FedBoosting a few",
            above_by_seed(
                "character_errors", {"method": "FedAvg"}, {"method": "FedBoosting"}, unit="errors per character"
            ),
        ),
        Claim(
            "reads-what-fedavg-misreads",
            "Of the words that only one of the two reads, FedBoosting reads more than half.",
            "nearly all of the 18 words shown",
            judge_seeds(_won, unit="share of the words that only one reads", least=0.5),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Table 4.2",
            method,
            "character errors",
            None,
            "%",
            metric="character_errors",
            tags={"method": method},
            factor=100,
        )
        for method in METHODS
    ),
    scales=make_scales(smoke=0.01, cpu=0.1, trainings=0.1),
    cells=cells,
    figures=_figures,
    stand_ins=STAND_INS,
    shares=SHARED,
    notes=(*NOTES, "The thesis shows words and no numbers; ours are the first that one of the two misreads."),
)
