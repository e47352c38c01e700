"""AGIC, Table IV: one gradient behind an untrained network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from leakscope.reproduction import (
    Claim,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    above,
    attack_cell,
    draw_victims,
    network,
)
from leakscope.reproduction.drawing import Drawing, compare_groups
from leakscope.reproduction.papers import AGIC
from leakscope.reproduction.recipe import Tag
from reproductions.agic.methods import EXPECTED, attack_gradient, print_quality

NAME = "agic/table-4"
METHODS = ("DLG-Adam", "InvG", "AGIC")
PRINTED = {
    ("CIFAR-10", 1): ((19.908, 0.727, 0.034), (20.671, 0.753, 0.031), (31.341, 0.963, 0.004)),
    ("CIFAR-10", 4): ((14.034, 0.412, 0.110), (14.421, 0.433, 0.103), (17.183, 0.586, 0.092)),
    ("ImageNet", 1): ((11.311, 0.094, 0.751), (12.832, 0.214, 0.691), (15.573, 0.366, 0.670)),
    ("ImageNet", 4): ((9.879, 0.070, 0.801), (11.640, 0.216, 0.720), (12.836, 0.302, 0.721)),
}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Every method on the same gradients; a network of its own for each victim."""
    for column, size in scale.options["parts"]:
        for victim, batch in enumerate(draw(scale, column, size)):
            for method in METHODS:
                if victim < scale.options.get("most", {}).get(method, scale.victims):
                    attack = attack_gradient(method, schedule=scale.options["schedule"], steps=scale.steps)
                    yield attack_one(
                        {"data": column, "batch": size, "method": method, "victim": victim}, scale, batch, attack
                    )


def draw(scale: RecipeScale, column: str, size: int) -> list[list[int]]:
    """The private batches of one part of the table."""
    data = scale.options["sets"][column]
    among = min(scale.among, scale.options.get("most_images", {}).get(column, scale.among))
    return draw_victims(NAME, scale.name, count=scale.victims, among=among, data=data, batch_size=size)


def attack_one(tags: Mapping[str, Tag], scale: RecipeScale, batch: list[int], attack: str) -> RecipeCell:
    """One attack on one untrained network; Figure 9 makes cells by the same function, so that they run once."""
    column, victim = str(tags["data"]), int(tags["victim"])
    return attack_cell(
        tags,
        model=network(scale.options["networks"][column], seed=victim),
        data=scale.options["sets"][column],
        indices=[batch],
        attack=attack,
        scenario="B",
        seed=victim,
        lpips=scale.is_evidence,
        pictures=1,
        expected=EXPECTED,
    )


def _figures(results: Results) -> list[Drawing]:
    return [
        compare_groups(
            results,
            "psnr",
            group="method",
            title=f"PSNR from one gradient, {data}, batch {size}",
            label="PSNR (dB)",
            name=f"methods-{str(data).lower()}-{size}",
            printed={one: rows[0] for one, rows in zip(METHODS, PRINTED[str(data), int(size)], strict=True)},
            data=data,
            batch=size,
        )
        for data, size in dict.fromkeys((one.cell.tags["data"], one.cell.tags["batch"]) for one in results)
    ]


def _above(ours: str, others: str, *, batch: int) -> Claim:
    places = [METHODS.index(name) for name in (ours, others)]
    told = [
        "{} against {} dB on {}".format(*(rows[place][0] for place in places), column)
        for (column, size), rows in PRINTED.items()
        if size == batch
    ]
    return Claim(
        f"{ours.lower()}-above-{others.lower()}-batch-{batch}",
        f"From the gradient of {batch} image{'s' if batch > 1 else ''} {ours} rebuilds better than {others}.",
        ", ".join(told),
        above("psnr", {"method": ours, "batch": batch}, {"method": others, "batch": batch}, ended="any"),
    )


SCALES = (
    RecipeScale(
        "smoke",
        0.01,
        victims=1,
        among=300,
        steps=2,
        models=("reproductions.networks:small_convnet",),
        data=("digits",),
        options={
            "schedule": "held",
            "parts": [["CIFAR-10", 1]],
            "sets": {"CIFAR-10": "digits"},
            "networks": {"CIFAR-10": "reproductions.networks:small_convnet"},
        },
    ),
    RecipeScale(
        "cpu",
        21,
        victims=5,
        among=800,
        steps=1_000,
        models=("resnet20-4",),
        data=("cifar10",),
        options={
            "schedule": "held",
            "parts": [["CIFAR-10", 1]],
            "sets": {"CIFAR-10": "cifar10"},
            "networks": {"CIFAR-10": "resnet20-4"},
            "most": {"DLG-Adam": 2},
        },
    ),
    RecipeScale(
        "paper",
        5_000_000,
        victims=100,
        among=10_000,
        steps=10_000,
        models=("resnet20-4", "resnet50"),
        data=("cifar10", "imagenet"),
        options={
            "schedule": "paper",
            "parts": [list(part) for part in PRINTED],
            "sets": {"CIFAR-10": "cifar10", "ImageNet": "imagenet"},
            "networks": {"CIFAR-10": "resnet20-4", "ImageNet": "resnet50"},
        },
    ),
)

RECIPE = PaperRecipe(
    name=NAME,
    paper=AGIC,
    item="Table IV",
    title="one gradient of one or four images behind an untrained network",
    scenario="B",
    claims=(
        _above("AGIC", "InvG", batch=1),
        _above("AGIC", "DLG-Adam", batch=1),
        _above("InvG", "DLG-Adam", batch=1),
        _above("AGIC", "InvG", batch=4),
        _above("AGIC", "DLG-Adam", batch=4),
        _above("InvG", "DLG-Adam", batch=4),
    ),
    numbers=tuple(
        number
        for (column, size), rows in PRINTED.items()
        for method, values in zip(METHODS, rows, strict=True)
        for number in print_quality(
            "Table IV",
            method,
            f"{column}, batch {size}",
            values,
            tags={"data": column, "batch": size, "method": method},
        )
    ),
    scales=SCALES,
    cells=cells,
    figures=_figures,
    notes=(
        "Layer weights pay late (docs/papers/agic.md): a run of a few hundred steps shows the opposite of a long one. "
        "So cpu spends its time on batches of one, 1,000 steps each; batches of four would need longer runs still, and "
        "are left to the scale of the paper, as is ImageNet (Figure 7 has photographs at 64 px).",
        "At cpu AGIC and Inverting Gradients run the same unsigned steps at a rate that never falls; Inverting "
        "Gradients is then AGIC with equal weights, the same objective. DLG-Adam attacks the first two victims.",
    ),
)
