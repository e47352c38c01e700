"""MKOR, section 4: Gaussian noise on the gradient of a hundred digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leakscope.reproduction import (
    Claim,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    above,
    draw_victims,
    every,
    network,
)
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import MKOR
from reproductions.mkor import table_2
from reproductions.mkor.methods import COUNTED, RAW_NLL, mkor_cell

NAME = "mkor/noise"
METHODS = ("DLG", "iDLG", "GI", "CF", "MKOR")
# From here on the release smooths what it read from LeNet.
SMOOTHED = 0.1


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every method at every noise, on the same batches."""
    data, specs = scale.data[0], table_2.specs(scale)
    batches = draw_victims(
        NAME, scale.name, count=scale.victims, among=scale.among, data=data, batch_size=scale.options["batch"]
    )
    for place, pool in enumerate(batches):
        for sigma in scale.options["sigmas"]:
            for method in scale.options.get("methods", METHODS):
                attack, loss = specs[method]
                yield mkor_cell(
                    {"sigma": sigma, "method": method, "batch": place},
                    model=network("lenet5", seed=place, normalise=None),
                    data=data,
                    pool=pool,
                    attack=f"{attack},smooth=true" if method == "MKOR" and sigma >= SMOOTHED else attack,
                    loss=loss,
                    size=28,
                    defence=f"gaussian-noise:sigma={sigma:g},relative=True",
                    seed=place,
                    pictures=8 * (place == 0),
                )


def _figures(results: Results) -> list[Drawing]:
    return [
        compare_groups(
            results,
            "ssim_max",
            group="method",
            title=f"SSIM of the best picture of a batch, noise of {sigma}",
            label="SSIM",
            name=f"best-{str(sigma).replace('.', '-')}",
            sigma=sigma,
        )
        for sigma in results.tags("sigma")
    ]


def _above_all(metric: str, others: tuple[str, ...], *, sigma: float):
    unit = "SSIM" if metric.startswith("ssim") else "dB"
    return every(
        *(
            above(metric, {"sigma": sigma, "method": "MKOR"}, {"sigma": sigma, "method": other}, unit=unit)
            for other in others
        )
    )


def _claims() -> Iterator[Claim]:
    for sigma, said in ((0.1, "a tenth"), (0.01, "a hundredth")):
        for metric, others, what in (
            ("psnr", ("GI", "iDLG", "DLG"), "on average over a batch"),
            ("psnr_max", ("GI", "CF", "iDLG", "DLG"), "by the best picture of a batch"),
        ):
            yield Claim(
                f"{metric.replace('_', '-')}-noise-{str(sigma).replace('.', '-')}",
                f"Under noise of {said} of the gradient's deviation MKOR rebuilds better than the others, {what}.",
                "MKOR outperforms all others under high noise; the numbers are in the supplement, not in the text",
                _above_all(metric, others, sigma=sigma),
            )


RECIPE = PaperRecipe(
    name=NAME,
    paper=MKOR,
    item="section 4, noise",
    title="a hundred digits behind LeNet-5 with Gaussian noise on the gradient, five attacks",
    scenario="B",
    claims=tuple(_claims()),
    numbers=tuple(
        PaperNumber(
            "supplement, Table 2",
            method,
            f"noise of {sigma}, average PSNR",
            None,
            tags={"sigma": sigma, "method": method},
        )
        for sigma in (0.01, 0.1)
        for method in METHODS
        if method != "CF"
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
            options={"batch": 6, "iterations": 1, "searches": 1, "sigmas": [0.1], "methods": ["GI", "MKOR"]},
        ),
        replace(
            table_2.RECIPE.scale("cpu"),
            minutes=6,
            victims=3,
            steps=150,
            models=("lenet5",),
            options={"batch": 100, "iterations": 8, "searches": 12, "sigmas": [0.01, 0.1]},
        ),
        replace(
            table_2.RECIPE.scale("paper"),
            models=("lenet5",),
            options={"batch": 100, "iterations": 300, "searches": 12, "sigmas": [0.01, 0.1]},
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins=table_2.RECIPE.stand_ins,
    legacy_metric="psnr_target_peak",
    notes=(RAW_NLL, COUNTED, "Noise of 0.1 and more is smoothed, as in the release."),
)
