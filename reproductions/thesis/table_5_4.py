"""Ren's thesis, Table 5.4: pictures that DLG and GRNN rebuild with and without a key-lock."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import (
    Claim,
    ClaimVerdict,
    PaperNumber,
    PaperRecipe,
    Results,
    judge_estimate,
    succeeds,
    untestable,
)
from leakscope.reproduction.judging import FEWEST
from leakscope.reproduction.papers import THESIS
from leakscope.reproduction.results import Ended
from leakscope.reproduction.statistics import paired_interval
from reproductions.thesis.lock_attacks import DLG, GRNN, SHARED, STAND_INS, grid_cells, make_scales
from reproductions.thesis.locks import KNOWN, LOCKED, NORMALISED, NOTES, PLAIN

NAME = "thesis/table-5-4"
# What a blind guess has, and as much more is still no picture.
MARGIN = 1.0
RECOGNISABLE = 20.0


def no_better_than_a_guess(attack: str, method: str, *, ended: Ended = "any"):
    """Whether a blind guess, and a decibel more, is above what was rebuilt."""

    def judge(results: Results) -> ClaimVerdict:
        told = {"attack": attack, "method": method}
        guess, found = (results.units(metric, ended=ended, **told) for metric in ("baseline_psnr", "psnr"))
        if len(found) < FEWEST or len(guess) != len(found):
            return untestable(f"{len(found)} attacks count; {FEWEST} are the fewest", n=len(found))
        return judge_estimate(
            paired_interval(guess, found), least=-MARGIN, unit="dB, a blind guess less what was rebuilt"
        )

    return judge


def _numbers() -> Iterator[PaperNumber]:
    for attack, methods in ((DLG, (PLAIN, LOCKED, NORMALISED, KNOWN)), (GRNN, (PLAIN, LOCKED, NORMALISED, KNOWN))):
        for method in methods:
            tags = {"attack": attack, "model": "LeNet", "data": "C-10", "method": method}
            yield PaperNumber("Table 5.4", f"{attack}, LeNet, C-10", f"picture {method}", None, "dB", tags=tags)


RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 5.4",
    title="pictures rebuilt by DLG and GRNN with and without a key-lock",
    scenario="C",
    claims=(
        Claim(
            "recognisable-without",
            "Without the lock GRNN rebuilds most pictures recognisably (20 dB).",
            "all that are shown, by eye",
            succeeds("psnr", RECOGNISABLE, share=0.5, attack=GRNN, method=PLAIN),
        ),
        Claim(
            "perturbed-dlg",
            "Behind a key-lock DLG as published rebuilds nothing: no nearer than a blind guess and 1 dB.",
            "completely perturbed, by eye",
            no_better_than_a_guess(DLG, LOCKED),
        ),
        Claim(
            "perturbed-grnn",
            "Behind a key-lock GRNN as published rebuilds nothing: no nearer than a blind guess and 1 dB.",
            "not recognisable, by eye",
            no_better_than_a_guess(GRNN, LOCKED),
        ),
        Claim(
            "perturbed-for-those-who-know",
            "Behind a key-lock a GRNN that knows of it and ended well rebuilds nothing either.",
            "no such attacker",
            no_better_than_a_guess(GRNN, KNOWN, ended="ok"),
        ),
    ),
    numbers=tuple(_numbers()),
    scales=make_scales(smoke=0.01, cpu=0.1, paper=1),
    cells=grid_cells,
    stand_ins=STAND_INS,
    shares=SHARED,
    notes=NOTES,
)
