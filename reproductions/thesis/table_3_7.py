"""Ren's thesis, Table 3.7: pictures that GRNN fails to rebuild at batches of 128 and 256."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from leakscope.reproduction import (
    Claim,
    ClaimVerdict,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    above,
    every,
    judge_estimate,
    untestable,
)
from leakscope.reproduction.papers import THESIS
from leakscope.reproduction.statistics import mean_interval
from reproductions.thesis import table_3_6
from reproductions.thesis.setting import RECOGNISABLE
from reproductions.thesis.verdicts import share_above

LARGE = (128, 256)


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """GRNN's cells behind LeNet, of Table 3.6."""
    for cell in table_3_6.cells(scale):
        if cell.tags["method"] == "GRNN" and cell.tags["model"] == "LeNet":
            yield cell


def some_fail(size: int, *, least: float = 0.05) -> Callable[[Results], ClaimVerdict]:
    """Whether more than `least` of the pictures of batches of `size` are below the threshold, batch by batch."""

    def judge(results: Results) -> ClaimVerdict:
        large = [one for one in results.where(batch=size) if one.examples("ssim")]
        if len(large) < 2:
            return untestable(f"batches of {size} are run at scale paper alone", n=len(large))
        failed = [1 - share_above(one, "ssim", RECOGNISABLE) for one in large]
        return judge_estimate(mean_interval(failed), least=least, unit="share of pictures")

    return judge


RECIPE = PaperRecipe(
    name="thesis/table-3-7",
    paper=THESIS,
    item="Table 3.7",
    title="pictures that GRNN fails to rebuild in large batches",
    scenario="C",
    claims=(
        Claim(
            "some-fail-in-large-batches",
            "At batches of 128 and 256 some of GRNN's pictures are not recognisable.",
            "examples of CIFAR-100 and LFW, by eye",
            every(*(some_fail(size) for size in LARGE)),
        ),
        Claim(
            "worse-in-larger-batches",
            "GRNN's pictures of a batch of 4 are better than those of a batch of 32.",
            "failures appear at 128 and 256, none below",
            above("ssim", {"batch": 4}, {"batch": 32}, unit="SSIM", ended="any"),
        ),
    ),
    numbers=(
        *(
            PaperNumber("Table 3.7", "GRNN, LeNet", f"batch {size}", None, "", metric="ssim", tags={"batch": size})
            for size in LARGE
        ),
        PaperNumber("Table 3.7", "GRNN, LeNet", "CIFAR-100", None, "", metric="ssim", tags={"data": "CIFAR-100"}),
    ),
    scales=tuple(replace(one, minutes=min(one.minutes, 0.1)) for one in table_3_6.RECIPE.scales),
    cells=cells,
    shares=table_3_6.NAME,
    notes=("The cells are Table 3.6's, which run once.", "The thesis prints pictures and no numbers here."),
)
