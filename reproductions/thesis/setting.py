"""What the recipes of the thesis's chapter 3 share: data and stand-ins, networks, victims, and how attacks may end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leakscope.reproduction import RecipeScale, draw_victims, network, training
from leakscope.types import LocalTraining

# What the thesis attacks, by its own names, at the scale `paper`; LFW's and VGG-Face's official files are one folder of
# pictures a person.
PAPER_SETS = {"MNIST": "mnist", "CIFAR-100": "cifar100", "LFW": "folder:lfw", "VGG-Face": "folder:vgg-face"}
CPU_SETS = {"MNIST": "digits", "CIFAR-100": "cifar100", "LFW": "olivetti", "VGG-Face": "olivetti"}
STAND_INS = {
    "MNIST": "the 8 × 8 digits of scikit-learn, brought to 32 × 32, in grey; the release triples the channel",
    "LFW": "olivetti at 32 × 32, in grey: 350 faces of 35 people for 13,233 of 5,749",
}
# How many examples of the test, and of the training part, lie in the sets of scale `cpu`.
CPU_TEST = {"digits": 360, "olivetti": 70, "cifar100": 800, "cifar10": 800}
CPU_TRAIN = {"digits": 1_437, "olivetti": 280, "cifar100": 486}
SIDE = 32
# The attacks of scale `paper`.
PUBLISHED = {"GRNN": "grnn:steps=1000,schedule=paper", "DLG": "dlg:steps=300,retries=3"}
# The threshold that the thesis itself names for a recognisable picture: its section 3.3.2.2.
RECOGNISABLE = 0.2
SMALL = "reproductions.networks:small_convnet"
ENDINGS = {
    "unfinished": "methods are compared after a fixed number of steps",
    "unexplained": "the method came no closer to the gradient than unrelated pictures do: a failure of the method",
    "diverged": "the search ended above its start: a failure of the method, no sign of protection",
    "nan": "the search left all finite numbers: a failure of the method, no sign of protection",
}
SCHEDULES = (
    "GRNN runs at scale cpu with leakscope's schedule (half the width, ten times the rate, absolute variation as in "
    "the text); the scale paper takes the release's: width 32, RMSprop at 1e-4, squared variation."
)
UNTRAINED = (
    "Non-converged networks are untrained, as in the authors' release; the text says after one iteration. "
    "Table 3.2 measures both."
)
LEGACY_NOTE = (
    "The printed PSNR has the root of the error in the place of the error: 47.03 is 45.9 dB in the usual formula. "
    "Numbers are shown by the printed formula, claims are judged in the usual one."
)


def columns_of(scale: RecipeScale) -> list[tuple[str, str]]:
    """The thesis's name of every data set of a scale, with the set that is read."""
    return list(zip(scale.options["columns"], scale.data, strict=True))


def draw(recipe: str, scale: RecipeScale, data: str, *, batch_size: int = 1) -> list[list[int]]:
    """The scale's victims in one set; smaller batches of a recipe are the beginnings of its larger ones."""
    among = scale.options.get("among", {}).get(data, scale.among)
    return draw_victims(recipe, scale.name, count=scale.victims, among=among, data=data, batch_size=batch_size)


def attacked(scale: RecipeScale, seed: int, **changes: Any) -> dict[str, Any]:
    """The attacked network: untrained, pictures not normalised, as in the release.

    Changes: `name` of the network, `mode`, `trained`, and options of a reference network.
    """
    name = changes.pop("name", scale.models[0])
    told = {key: changes.pop(key) for key in ("mode", "trained") if key in changes}
    options = {} if ":" in name else {"normalise": None, **changes}
    return network(name, seed=seed, **told, **options)


def converge(data: str, *, epochs: int, size: int | None) -> dict[str, Any]:
    """A training on all training pictures to nearly no loss: Adam, batches of 16, one client."""
    local = LocalTraining(lr=0.003, epochs=epochs, batch_size=16, optimiser="adam", shuffle=True)
    return training(data, rounds=1, local=local, test_examples=40, held_out=0.0, size=size)


def train_once(data: str, *, size: int | None) -> dict[str, Any]:
    """One iteration of SGD on 16 pictures, at a rate of 0.01: the text's state of the attacked network."""
    local = LocalTraining(lr=0.01, steps=1, batch_size=16)
    return training(data, rounds=1, local=local, examples=16, test_examples=8, held_out=0.0, size=size)


def reads(data: str, batches: Sequence[Sequence[int]], *, size: int | None, split: str = "test") -> dict[str, Any]:
    """What a function reads of a set, for `call_cell`."""
    return {"name": data, "split": split, "size": size, "indices": [place for one in batches for place in one]}


def smoke_scale(**options: Any) -> RecipeScale:
    """Two steps behind a tiny network on 8 × 8 digits."""
    usual: Mapping[str, Any] = {
        "columns": ["MNIST"],
        "side": None,
        "attacks": {"GRNN": "grnn:steps=2,width=4", "DLG": "dlg:steps=1,retries=0"},
    }
    return RecipeScale(
        "smoke",
        0.01,
        victims=1,
        among=300,
        steps=2,
        models=(SMALL,),
        data=("digits",),
        options={**usual, **options},
    )


def paper_scale(
    minutes: float,
    columns: Sequence[str],
    *,
    victims: int,
    among: int,
    models: tuple[str, ...] = ("lenet-grnn",),
    attacks: Mapping[str, str] = PUBLISHED,
    **options: Any,
) -> RecipeScale:
    """The thesis' own sets at 32 × 32 and the published attacks."""
    return RecipeScale(
        "paper",
        minutes,
        victims=victims,
        among=among,
        steps=1_000,
        models=models,
        data=sets_of(columns, paper=True),
        options={"columns": list(columns), "side": SIDE, "attacks": dict(attacks), **options},
    )


def sets_of(columns: Sequence[str], *, paper: bool = False) -> tuple[str, ...]:
    """The sets of some columns, themselves or their stand-ins."""
    return tuple((PAPER_SETS if paper else CPU_SETS)[column] for column in columns)
