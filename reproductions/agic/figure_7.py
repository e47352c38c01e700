"""AGIC, Figure 7: photographs of ImageNet from one gradient."""

from __future__ import annotations

from collections.abc import Iterator

from leakscope.reproduction import (
    Claim,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    above,
    attack_cell,
    draw_victims,
    network,
)
from leakscope.reproduction.papers import AGIC
from reproductions.agic.methods import EXPECTED, attack_gradient
from reproductions.agic.table_4 import METHODS

NAME = "agic/figure-7"


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every method on the same photographs; an untrained network of its own for each."""
    data = scale.data[0]
    for victim, batch in enumerate(draw_victims(NAME, scale.name, count=scale.victims, among=scale.among, data=data)):
        for method in METHODS:
            yield attack_cell(
                {"method": method, "victim": victim},
                model=network(scale.models[0], seed=victim),
                data=data,
                indices=[batch],
                size=scale.options["size"],
                attack=attack_gradient(method, schedule=scale.options["schedule"], steps=scale.steps),
                scenario="B",
                seed=victim,
                lpips=scale.is_evidence,
                pictures=1,
                expected=EXPECTED,
            )


def _above(others: str, printed: float) -> Claim:
    return Claim(
        f"agic-above-{others.lower()}",
        f"AGIC's photographs are nearer to the originals than those of {others}.",
        f"by eye; Table IV has 15.573 against {printed} dB at batch 1",
        above("psnr", {"method": "AGIC"}, {"method": others}, ended="any"),
    )


RECIPE = PaperRecipe(
    name=NAME,
    paper=AGIC,
    item="Figure 7",
    title="photographs rebuilt from the gradient of one image behind an untrained network",
    scenario="B",
    claims=(_above("InvG", 12.832), _above("DLG-Adam", 11.311)),
    numbers=tuple(
        PaperNumber("Figure 7", method, "image, no number printed", None, tags={"method": method}) for method in METHODS
    ),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            victims=1,
            among=39,
            steps=2,
            models=("reproductions.networks:small_convnet",),
            data=("sample-photos",),
            options={"schedule": "accelerated", "size": 16},
        ),
        RecipeScale(
            "cpu",
            8,
            victims=2,
            among=200,
            steps=55,
            models=("resnet18",),
            data=("imagenet",),
            options={"schedule": "accelerated", "size": 64},
        ),
        RecipeScale(
            "paper",
            20_000,
            victims=2,
            among=50_000,
            steps=10_000,
            models=("resnet50",),
            data=("imagenet",),
            options={"schedule": "paper", "size": 224},
        ),
    ),
    cells=cells,
    stand_ins={
        "ImageNet at 224 px": "200 sample photographs of ImageNet, one of every fifth class, at 64 px",
        "ResNet-50": "ResNet-18, both untrained",
    },
    notes=("The figure shows two photographs. 55 accelerated steps are early for layer weights.",),
)
