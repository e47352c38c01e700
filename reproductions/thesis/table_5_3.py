"""Ren's thesis, Table 5.3: what the global model is worth with another key."""

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
    network,
)
from leakscope.reproduction.drawing import Drawing, draw_intervals
from leakscope.reproduction.papers import THESIS
from leakscope.reproduction.results import CellResult
from leakscope.reproduction.statistics import mean_interval
from reproductions.thesis.by_seed import judge_seeds
from reproductions.thesis.locks import LOCKED, RELU, TRAINING_NOTES, TRAINING_STAND_INS, lock_trainings, training_scales

NAME = "thesis/table-5-3"
# Clients 0, 1, 2, their mean, and a random key with untrained lock layers; then the share of the lock's parameters.
PRINTED = {
    ("LeNet", "MNIST"): (97.88, 97.90, 97.66, 97.45, 10.45),
    ("ResNet-20", "C-10"): (88.59, 87.88, 88.63, 88.45, 79.17),
    ("ResNet-20", "C-100"): (62.17, 61.84, 61.99, 61.97, 28.51),
    ("ResNet-32", "C-10"): (89.26, 89.42, 88.83, 89.29, 75.91),
    ("ResNet-32", "C-100"): (63.92, 64.28, 64.17, 64.17, 45.14),
    ("ResNet-18", "C-10"): (90.23, 91.78, 89.63, 91.66, 89.41),
    ("ResNet-18", "C-100"): (74.30, 74.17, 74.28, 74.19, 61.60),
    ("ResNet-34", "C-10"): (93.40, 92.76, 93.28, 93.27, 91.77),
    ("ResNet-34", "C-100"): (76.74, 76.25, 76.57, 76.61, 69.76),
    ("VGG-16", "C-10"): (93.58, 93.40, 93.59, 93.54, 93.22),
    ("VGG-16", "C-100"): (72.67, 73.17, 72.76, 73.06, 71.60),
}
PROPORTIONS = {
    "LeNet": 22.43,
    "ResNet-20": 10.49,
    "ResNet-32": 6.46,
    "ResNet-18": 1.15,
    "ResNet-34": 0.61,
    "VGG-16": 0.097,
}
SIZES = "parameters"
KEYS = {"random key": "random_key", "untrained locks": "initial_locks", "Random": "random_and_initial"}


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The federated trainings of Table 5.1 that have a lock, and how large each lock is."""
    for cell in lock_trainings(scale):
        if cell.tags["place"] == "FL" and cell.tags["method"] in (LOCKED, RELU):
            yield cell
    for one in scale.options["settings"]:
        side = one["size"] or (8 if one["set"] == "digits" else 32)
        yield call_cell(
            {"model": one["model"], "data": one["data"], "method": SIZES},
            "reproductions.thesis.lock_sizes:measure_lock",
            model=network(one["network"], seed=0, **one["options"]),
            data=one["set"],
            shape=[3 if "cifar" in one["set"] else 1, side, side],
            defence="key-lock",
        )


def lost(one: CellResult, metric: str) -> float | None:
    """What the global model loses: the mean of the clients, each with its own key and lock layers, less `metric`."""
    own = one.units("own_keys")
    return fmean(own) - float(one.values[metric]) if one.is_ok and own else None


def _losses(metric: str, **tags: str):
    """Whether the global model loses accuracy, mean over the cells of a seed."""

    def measure(results: Results) -> float | None:
        found = [lost(one, metric) for one in results.where(**tags)]
        known = [value for value in found if value is not None]
        return fmean(known) if known else None

    return measure


def _difference(first: dict[str, str], second: dict[str, str]):
    def measure(results: Results) -> float | None:
        left, right = (_losses("random_and_initial", method=LOCKED, **one)(results) for one in (first, second))
        return None if left is None or right is None else left - right

    return measure


def _gaps(results: Results) -> list[float]:
    """One gap for every network and set, mean over the seeds; where its proportion was measured as well."""
    return [gap for gap, _ in _points(results)]


def _proportions(results: Results) -> list[float]:
    return [proportion for _, proportion in _points(results)]


def _points(results: Results) -> list[tuple[float, float]]:
    found = []
    for size in results.where(method=SIZES):
        tags = {"model": size.cell.tags["model"], "data": size.cell.tags["data"]}
        gaps = [lost(one, "random_and_initial") for one in results.where(method=LOCKED, **tags)]
        known = [gap for gap in gaps if gap is not None]
        if known and size.is_ok:
            found.append((fmean(known), float(size.values["proportion"])))
    return found


def _figures(results: Results) -> list[Drawing]:
    drawn = []
    for model in results.tags("model"):
        chosen = results.where(model=model, method=LOCKED)
        rows = {"own key": chosen.units("own_keys"), **{key: chosen.units(name) for key, name in KEYS.items()}}
        known = {key: mean_interval(values) for key, values in rows.items() if values}
        title = f"Accuracy by key and lock layers, {model}"
        drawn.append(draw_intervals(known, title=title, label="share right", name=f"keys-{str(model).lower()}"))
    return drawn


def _numbers() -> Iterator[PaperNumber]:
    for (model, data), values in PRINTED.items():
        tags = {"model": model, "data": data, "method": LOCKED, "place": "FL"}
        for row, value in zip(("Client 0", "Client 1", "Client 2", "Average", "Random"), values, strict=True):
            metric = {"Average": "accuracy", "Random": "random_and_initial"}.get(row, "own_keys")
            column = f"{model}, {data}" if metric != "own_keys" else f"{model}, {data}; ours is the mean of the clients"
            yield PaperNumber("Table 5.3", row, column, value, "%", metric=metric, tags=tags, factor=100)
        for key in ("random key", "untrained locks"):
            yield PaperNumber(
                "Table 5.3", f"{key} alone", f"{model}, {data}", None, "%", metric=KEYS[key], tags=tags, factor=100
            )
    for model, value in PROPORTIONS.items():
        tags = {"model": model, "method": SIZES}
        yield PaperNumber(
            "Table 5.3", "parameter proportion", model, value, "%", metric="proportion", tags=tags, factor=100
        )


UNIT = "share right"
RECIPE = PaperRecipe(
    name=NAME,
    paper=THESIS,
    item="Table 5.3",
    title="accuracy of the global model with the clients' keys and with others",
    scenario="no server attacks: a training",
    claims=(
        Claim(
            "random-key-and-locks-lose",
            "With a random key and untrained lock layers the global model loses accuracy.",
            "97.45 to 10.45 % (LeNet), 88.45 to 79.17 % (ResNet-20, CIFAR-10)",
            judge_seeds(_losses("random_and_initial", method=LOCKED), unit=UNIT),
        ),
        Claim(
            "random-key-alone-loses",
            "A random key alone, with the clients' trained lock layers, makes the global model lose accuracy.",
            "not separated: what is called a random key is always tried with untrained lock layers",
            judge_seeds(_losses("random_key", method=LOCKED), unit=UNIT),
        ),
        Claim(
            "relu-random-key-and-locks-lose",
            "With the released code's ReLU, too, a random key and untrained lock layers lose accuracy.",
            "not separated",
            judge_seeds(_losses("random_and_initial", method=RELU), unit=UNIT),
        ),
        Claim(
            "small-networks-lose-more",
            "LeNet loses more than ResNet-20 by a random key and untrained lock layers.",
            "87.00 against 9.28 points",
            judge_seeds(_difference({"model": "LeNet"}, {"model": "ResNet-20", "data": "C-10"}), unit=UNIT),
        ),
        Claim(
            "more-classes-lose-more",
            "ResNet-20 loses more on CIFAR-100 than on CIFAR-10.",
            "33.46 against 9.28 points",
            judge_seeds(
                _difference({"model": "ResNet-20", "data": "C-100"}, {"model": "ResNet-20", "data": "C-10"}), unit=UNIT
            ),
        ),
        Claim(
            "gap-grows-with-proportion",
            "The larger the lock's share of the parameters, the larger the loss.",
            "a positive relationship, with an exception: ResNet-20 and ResNet-32 on CIFAR-10",
            correlates(_proportions, _gaps),
        ),
    ),
    numbers=tuple(_numbers()),
    scales=training_scales(smoke=0.01, cpu=0.2, paper=1),
    cells=cells,
    figures=_figures,
    stand_ins=TRAINING_STAND_INS,
    shares="thesis/table-5-1",
    notes=(
        *TRAINING_NOTES,
        "As released, the server's attempt to restore the first lock layers does nothing, and the model is tested with "
        "lock layers of zeros. Here each of the two is tried on purpose, alone and together.",
        "The average of the thesis is the best round's, ours the last round's. Its LeNet's proportion does not follow "
        "from the LeNet of its code.",
    ),
)
