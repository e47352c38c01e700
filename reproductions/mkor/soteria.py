"""MKOR, section 4: Soteria on the layer that MKOR reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from leakscope.reproduction import (
    Claim,
    ClaimVerdict,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    draw_victims,
    judge_estimate,
    network,
    reaches,
    untestable,
)
from leakscope.reproduction.drawing import Drawing, draw_intervals
from leakscope.reproduction.papers import MKOR
from leakscope.reproduction.statistics import mean_interval, paired_interval
from reproductions.mkor.methods import COUNTED, RAW_NLL, mkor_cell

NAME = "mkor/soteria"
METHODS = ("GI", "CF", "MKOR")
DEFENCES = {"none": "none", "Soteria": "soteria:percentile=60,layer=fc1,variant=ggl"}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every method with and without Soteria, on the same batches."""
    data = scale.data[0]
    attacks = {
        "GI": (f"inverting-gradients:layers=all,steps={scale.steps}", "cross-entropy"),
        "CF": (f"class-fishing:searches={scale.options['searches']},steps={scale.steps}", "cross-entropy"),
        "MKOR": ("mkor:loss=raw-nll", "raw-nll"),
    }
    batches = draw_victims(
        NAME, scale.name, count=scale.victims, among=scale.among, data=data, batch_size=scale.options["batch"]
    )
    for place, pool in enumerate(batches):
        for method in scale.options.get("methods", METHODS):
            attack, loss = attacks[method]
            for name, defence in DEFENCES.items():
                yield mkor_cell(
                    {"defence": name, "method": method, "batch": place},
                    model=network("lenet5", seed=place, normalise=None),
                    data=data,
                    pool=pool,
                    attack=attack,
                    loss=loss,
                    size=28,
                    defence=defence,
                    seed=place,
                    pictures=8 * (place == 0),
                )


def drops(results: Results, method: str, *, metric: str) -> list[float]:
    """What Soteria takes from a method, batch by batch: the value without it less the value with it.

    An attack that gave up is no evidence that a defence protects: its batch is left out.
    """
    well = Results(tuple(one for one in results if one.values.get("ended_ok") == 1.0))
    ours, others = ({"defence": name, "method": method} for name in ("none", "Soteria"))
    without, defended = well.pairs(metric, ours, others)
    return [one - other for one, other in zip(without, defended, strict=True)]


def _less(other: str, metric: str):
    """What Soteria takes from another attack less what it takes from MKOR."""

    def judge(results: Results) -> ClaimVerdict:
        theirs, ours = drops(results, other, metric=metric), drops(results, "MKOR", metric=metric)
        if min(len(theirs), len(ours)) < 2:
            return untestable(f"{min(len(theirs), len(ours))} batches; 2 are the fewest")
        unit = "SSIM" if metric.startswith("ssim") else "dB"
        told = f"{fmean(theirs):.3g} taken from {other}, {fmean(ours):.3g} from MKOR"
        return judge_estimate(paired_interval(theirs, ours), unit=unit, note=told)

    return judge


def _figures(results: Results) -> list[Drawing]:
    found: dict[str, Sequence[float]] = {name: drops(results, name, metric="psnr_max") for name in METHODS}
    rows = {name: mean_interval(values) for name, values in found.items() if values}
    title = "What Soteria takes from the best picture of a batch"
    return [draw_intervals(rows, title=title, label="PSNR (dB)", name="drops")] if rows else []


RECIPE = PaperRecipe(
    name=NAME,
    paper=MKOR,
    item="section 4, Soteria",
    title="digits behind LeNet-5 with Soteria on the first linear layer, three attacks",
    scenario="B",
    claims=(
        Claim(
            "less-than-gi",
            "Soteria takes less from MKOR than from GI, by the average SSIM of a batch.",
            "not as effective on MKOR as on the others; the numbers are in the supplement, not in the text",
            _less("GI", "ssim"),
        ),
        Claim(
            "less-than-cf",
            "Soteria takes less from MKOR than from class fishing, by the best PSNR of a batch.",
            "not as effective on MKOR as on the others",
            _less("CF", "psnr_max"),
        ),
        Claim(
            "still-something",
            "Under Soteria the best picture that MKOR rebuilds still has a PSNR above 12 dB.",
            "MKOR still reconstructs; pictures in the supplement",
            reaches("psnr_max", 12.0, defence="Soteria", method="MKOR"),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "supplement, Table 3",
            method,
            f"{name}, best PSNR",
            None,
            metric="psnr_max",
            tags={"defence": name, "method": method},
        )
        for method in METHODS
        for name in DEFENCES
    ),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            victims=1,
            among=300,
            steps=2,
            models=("lenet5",),
            data=("digits",),
            options={"batch": 3, "searches": 1, "methods": ["MKOR"]},
        ),
        RecipeScale(
            "cpu",
            6,
            victims=6,
            among=10_000,
            steps=300,
            models=("lenet5",),
            data=("fashion-mnist",),
            options={"batch": 20, "searches": 6},
        ),
        RecipeScale(
            "paper",
            600,
            victims=10,
            among=10_000,
            steps=4_800,
            models=("lenet5",),
            data=("mnist",),
            options={"batch": 100, "searches": 12},
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={"MNIST": "Fashion-MNIST", "batches of 100": "batches of 20 at cpu"},
    legacy_metric="psnr_target_peak",
    notes=(
        RAW_NLL,
        COUNTED,
        "Soteria acts on the first linear layer, which MKOR reads, with the divisor of MKOR's own code; the text does "
        "not say how many columns it zeroed, here 60 in a hundred.",
    ),
)
