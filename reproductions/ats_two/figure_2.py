"""ATS replication II, Figure 2: does the privacy score predict what an attack rebuilds?"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from leakscope.reproduction import (
    Claim,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    call_cell,
    correlates,
    draw_victims,
    network,
    training,
)
from leakscope.reproduction.cells import Spec
from leakscope.reproduction.drawing import Drawing, draw_points
from leakscope.reproduction.papers import ATS_TWO
from leakscope.types import LocalTraining
from reproductions.ats_policies import SEARCH, attack_of
from reproductions.ats_two.scores import draw_policies

NAME = "ats_two/figure-2"


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """One cell per policy; pictures, noise and network are the same for all."""
    data = scale.data[0]
    pictures = draw_victims(NAME, scale.name, count=scale.victims, among=scale.among, data=data)
    model = network(scale.models[0], seed=0, trained=_trained(scale))
    for policy in draw_policies(NAME, scale.name, count=scale.options["policies"]):
        yield call_cell(
            {"policy": policy},
            "reproductions.ats_two.scores:privacy_and_psnr",
            reads=[{"name": data, "split": "test", "indices": [place for one in pictures for place in one]}],
            policy=policy,
            data=data,
            indices=pictures,
            model=model,
            attack=attack_of(scale),
        )


def _trained(scale: RecipeScale) -> Spec | None:
    """The network of the search: a short training on a few pictures, without policies."""
    epochs = scale.options["epochs"]
    if not epochs:
        return None
    local = LocalTraining(
        lr=0.1, epochs=epochs, batch_size=32, momentum=0.9, nesterov=True, weight_decay=5e-4, shuffle=True
    )
    return training(scale.data[0], rounds=1, local=local, test_examples=100, held_out=0.0)


def _means(metric: str):
    def of(results: Results) -> list[float]:
        return [fmean(one.units(metric)) for one in results if one.is_ok]

    return of


def _figures(results: Results) -> list[Drawing]:
    points = list(zip(_means("privacy")(results), _means("psnr")(results), strict=True))
    labels = {"x_label": "privacy score S_pri", "y_label": "PSNR (dB)"}
    return [
        draw_points({"policies": points}, title="Privacy score and PSNR, one point a policy", name="scatter", **labels)
    ]


RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_TWO,
    item="Figure 2",
    title="S_pri against PSNR over random policies",
    scenario="B",
    claims=(
        Claim(
            "correlated",
            "The privacy score is positively correlated with what an attack rebuilds.",
            "Gao et al.: Pearson's r = 0.697; this replication: no correlation; the other one: r = 0.123",
            correlates(_means("privacy"), _means("psnr")),
        ),
    ),
    numbers=(
        PaperNumber("section 5.2", "no policy", "mean S_pri", 0.32, "", metric="privacy", why_not="see figure-6"),
        PaperNumber("section 5.2", "random policies", "mean S_pri", 0.38, "", metric="privacy", tags={}),
        PaperNumber("Figure 2", "random policies", "PSNR of the attack", None, "dB", tags={}),
    ),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            victims=1,
            among=20,
            steps=2,
            models=("reproductions.networks:small_convnet",),
            data=("sample-photos",),
            options={"policies": 4, "epochs": 0, "attack": SEARCH},
        ),
        RecipeScale(
            "cpu",
            15,
            victims=2,
            among=800,
            steps=60,
            models=("resnet20-4",),
            data=("cifar100",),
            options={"policies": 40, "epochs": 2, "attack": SEARCH},
        ),
        RecipeScale(
            "paper",
            200_000,
            victims=20,
            among=10_000,
            steps=2_500,
            models=("resnet20-4",),
            data=("cifar100",),
            options={"policies": 100, "epochs": 50, "attack": "adam-cosine"},
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={
        "a network trained on a tenth of CIFAR-100": "one trained for two epochs on the CIFAR-100 pictures at hand",
        "Adam + cosine, 2,500 steps": "inverting-gradients, 60 steps",
    },
    notes=("PSNR is against the transformed picture, as in the papers.",),
)
