"""The cells of chapter 4: two clients that read different words, one recogniser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from leakscope.reproduction import PaperNumber, RecipeCell, RecipeScale, call_cell, network, training
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.results import CellResult, Results
from leakscope.types import LocalTraining

# All items of the chapter use this recipe's folder: one warm start, and cells that several of them show run once.
SHARED = "thesis/table-4-1"
SCENARIO = "no server attacks: a training"
BOTH = "ST & 90K"
COLUMNS = ("IIIT5K", "SVT", "SCUT", "IC15")
STRATEGIES = {
    "FedAvg": "fedavg",
    "FedBoosting": "fedboosting:formula=released",
    "FedBoosting, as written": "fedboosting:formula=thesis",
    "FedBoosting, validation only": "fedboosting:formula=released,training_loss=false",
    "FedBoosting, mixed": "fedboosting:formula=released,mixing=0.9",
}
CENTRAL = "CRNN"
# In the order of the clients: which of our styles stands for which set.
STYLES = {"90K": "plain", "ST": "scene"}

STAND_INS = {
    "Synth90K": "words-plain, rendered: the set is tens of gigabytes; not in the paper scale either",
    "SynthText": "words-scene, rendered, for the same reason",
    "IIIT5K": "485 words of its training part, squeezed to 32 × 100; none of the test part is here",
    "CRNN": "crnn-small, 619,429 weights, warmed up on other words of both styles: an untrained one reads nothing "
    "for tens of thousands of words",
    "batches of 256, 512, 800": "see the setting `batches`: a client has few words here, and what matters is how many "
    "steps it goes between two averages",
    "AdaDelta": "Adam at 0.001; the published rate of 0.05 is never used by the released code",
}
NOTES = (
    "All trainings start from the same warm recogniser and make as many passes over the clients' words: more local "
    "epochs are fewer rounds. What happens in the first rounds of an untrained one is not tested at cpu.",
    "FedBoosting is the released code's formula. The written one, softmax(softmax(T)·ΣV) of losses, gives the worse "
    "model the larger weight; it has rows of its own.",
)
_WHERE = {"SVT": "Street View Text", "SCUT": "SCUT-FORU", "IC15": "ICDAR 2015"}

WARM = {"words": 6_000, "epochs": 3, "batch_size": 64, "lr": 2e-3}
SMOKE: dict[str, Any] = {
    "network": {},
    "warm": None,
    "styles": ["plain", "plain"],
    "words": 10,
    "passes": 3,
    "tested": 2,
    "batches": {"800": 10},
    "real": False,
    "alone": False,
    "seal": {"scheme": "paillier", "bits": 2048, "legacy": True, "pieces": 100, "clients": 2},
}
CPU: dict[str, Any] = {
    "network": {"normalise": "words-plain"},
    "warm": WARM,
    "styles": list(STYLES.values()),
    "words": 800,
    "passes": 6,
    "tested": 250,
    "batches": {"256": 16, "800": 64},
    "real": True,
    "alone": False,
    "seal": {"scheme": "ckks", "pieces": 100, "clients": 2},
}
# Rendered words as everywhere: neither synthetic set can be loaded. 100,000 of each, and no warm start.
PAPER: dict[str, Any] = {
    **CPU,
    "warm": None,
    "words": 100_000,
    "passes": 24,
    "tested": 1_000,
    "batches": {"256": 256, "512": 512, "800": 800},
    "alone": True,
    "seal": {"scheme": "paillier", "pieces": 100, "clients": 2},
}
# One training at the scale of the paper: 2 clients, 90,000 words, 24 passes, 48 ms a word with the full recogniser.
PAPER_MINUTES = 3_500


def make_scales(*, smoke: float, cpu: float, trainings: float) -> tuple[RecipeScale, ...]:
    """The three scales; `cpu` minutes, and how many trainings the paper's scale has."""
    data = ("words-plain", "words-scene", "iiit5k")
    return (
        RecipeScale(
            "smoke",
            smoke,
            seeds=(0,),
            models=("reproductions.thesis.reading:tiny_reader",),
            data=("words-plain",),
            options=SMOKE,
        ),
        RecipeScale("cpu", cpu, seeds=(0, 1, 2), models=("crnn-small",), data=data, options=CPU),
        RecipeScale("paper", PAPER_MINUTES * trainings, seeds=(0, 1, 2), models=("crnn",), data=data, options=PAPER),
    )


def warm_network(scale: RecipeScale) -> dict[str, Any]:
    """The recogniser that every training starts from: trained once on words of both styles, or untrained."""
    warm = scale.options["warm"]
    if warm is None:
        return network(scale.models[0], seed=0, **scale.options["network"])
    local = LocalTraining(
        lr=warm["lr"], epochs=warm["epochs"], batch_size=warm["batch_size"], optimiser="adam", shuffle=True
    )
    # In one place; of both styles, and no word of a client.
    trained = training(
        ["words-plain", "words-scene"],
        rounds=1,
        local=local,
        clients=2,
        examples=warm["words"],
        test_examples=100,
        held_out=0.0,
        central=True,
    )
    return network(scale.models[0], seed=0, trained=trained, **scale.options["network"])


def text_cell(
    scale: RecipeScale,
    tags: Mapping[str, Any],
    *,
    method: str,
    batch: str,
    epochs: int,
    seed: int,
    data: str = BOTH,
    sealed: bool = False,
) -> RecipeCell:
    """One training; equal settings are the same work whatever the tags."""
    options = scale.options
    local = LocalTraining(lr=1e-3, epochs=epochs, batch_size=options["batches"][batch], optimiser="adam", shuffle=True)
    styles = options["styles"] if data == BOTH else [STYLES[data]]
    how = training(
        [f"words-{style}" for style in styles],
        rounds=max(1, options["passes"] // epochs),
        local=local,
        clients=len(styles),
        strategy=STRATEGIES.get(method, "fedavg"),
        examples=options["words"],
        seed=seed,
        central=method == CENTRAL,
    )
    return call_cell(
        {**tags, "seed": seed},
        "reproductions.thesis.reading:federate",
        # Rendered words follow from leakscope's source, which every key covers.
        reads=[{"name": "iiit5k", "split": "test"}] if options["real"] else [],
        model=warm_network(scale),
        how=how,
        styles=styles,
        tested=options["tested"],
        real=options["real"],
        seal=options["seal"] if sealed else None,
    )


def text_number(
    where: str, row: str, column: str, value: float | None, *, tags: Mapping[str, Any] | None, metric: str = "accuracy"
) -> PaperNumber:
    """A printed accuracy; of the four test sets one is here."""
    if column in _WHERE:
        why = f"{_WHERE[column]} is not on this machine; as a folder with labels.csv it could be tested on"
        return PaperNumber(where, row, column, value, "%", metric=metric, why_not=why)
    return PaperNumber(where, row, column, value, "%", metric=metric, tags=tags, factor=100)


def at_passes(accuracies: list[float], epochs: int, *, every: int) -> list[float]:
    """The curve after every so many passes over the words, whatever number of them makes a round."""
    return accuracies[every // epochs - 1 :: every // epochs]


def draw_curves(results: Results, *, title: str, name: str, legend: tuple[str, ...]) -> Drawing:
    """Accuracy over passes of the first seed, one line for each cell; `legend` are the tags that name it."""
    first = results.where(seed=results.tags("seed")[0])
    lines = {
        ", ".join(f"{one.cell.tags[tag]}{_UNITS.get(tag, '')}" for tag in legend): list(_points(one))
        for one in first
        if one.values
    }
    return draw_lines(lines, title=title, x_label="passes over the words", y_label="words read", name=name)


_UNITS = {"batch": " B", "epochs": " E"}


def _points(one: CellResult) -> Iterator[tuple[float, float]]:
    epochs = one.cell.tags.get("epochs", 1)
    yield 0.0, float(one.values["start"])
    for place, accuracy in enumerate(one.values["accuracies"], start=1):
        yield float(place * int(epochs)), float(accuracy)
