"""ATS replication I, Figure 4: training curves with and without policies."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from leakscope.reproduction import (
    Claim,
    ClaimVerdict,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    every,
    judge_estimate,
    untestable,
)
from leakscope.reproduction.drawing import Drawing, draw_lines
from leakscope.reproduction.papers import ATS_ONE
from leakscope.reproduction.statistics import paired_interval
from reproductions.ats_one.table_1 import CPU_ACCURACIES, PAPER_BLOCKS, SMOKE_ACCURACY, STAND_INS, policies_of
from reproductions.ats_policies import HOME, NONE, accuracy_cells

NAME = "ats_one/figure-4"
ROWS = (NONE, "3-1-7", "43-18-18", "Hybrid")


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """The trainings of Table 1 on CIFAR-100."""
    (setting,) = scale.options["accuracies"]
    policies = {row: numbers for row, numbers in policies_of(setting).items() if row in ROWS}
    yield from accuracy_cells(scale, setting, policies)


def mean_accuracy(accuracies: list[float]) -> float:
    """The area under the curve: one that rises later has less."""
    return fmean(accuracies)


def fastness(policy: str, *, least: float = -0.05):
    """Whether the area under the policy's curve is at most so much less than that without a policy, by seed."""

    def judge(results: Results) -> ClaimVerdict:
        rows = {
            row: {one.cell.tags["seed"]: mean_accuracy(one.units("accuracies")) for one in results.where(policy=row)}
            for row in (policy, NONE)
        }
        seeds = [seed for seed in rows[policy] if seed in rows[NONE]]
        if len(seeds) < 2:
            return untestable(f"{len(seeds)} seeds; 2 are the fewest", n=len(seeds))
        found = paired_interval(*([rows[row][seed] for seed in seeds] for row in (policy, NONE)))
        return judge_estimate(found, least=least, unit="share, mean over epochs")

    return judge


def draw_curves(results: Results, rows: tuple[str, ...]) -> list[Drawing]:
    """Accuracy and loss over epochs, mean over seeds."""
    drawn = []
    for metric, label in (("accuracies", "accuracy"), ("losses", "loss on the test set")):
        lines = {}
        for row in rows:
            curves = [one.units(metric) for one in results.where(policy=row) if one.units(metric)]
            lines[row] = [(float(epoch + 1), fmean(values)) for epoch, values in enumerate(zip(*curves, strict=True))]
        title = f"{label[0].upper()}{label[1:]} over epochs"
        drawn.append(draw_lines(lines, title=title, x_label="epoch", y_label=label, name=f"curves-{metric}"))
    return drawn


def _figures(results: Results) -> list[Drawing]:
    return draw_curves(results, ROWS)


RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_ONE,
    item="Figure 4",
    title="loss and accuracy over the training with and without policies",
    scenario="no server attacks: a training",
    claims=(
        Claim(
            "as-fast",
            "Training with a policy is as fast as without: the mean accuracy over the epochs is at most five points "
            "lower.",
            "almost no impact on training efficiency, by eye",
            every(*(fastness(row) for row in ROWS[1:])),
        ),
        Claim(
            "hybrid-as-fast",
            "Training with the hybrid policy is as fast as without, in the same sense.",
            "almost no impact on training efficiency, by eye",
            fastness("Hybrid"),
        ),
    ),
    numbers=tuple(
        PaperNumber(
            "Figure 4", row, "accuracy at the end", None, "%", metric="accuracy", tags={"policy": row}, factor=100
        )
        for row in ROWS
    ),
    scales=(
        RecipeScale("smoke", 0.01, options={"accuracies": [SMOKE_ACCURACY]}),
        # All cells are Table 1's.
        RecipeScale("cpu", 0.01, seeds=(0, 1, 2), options={"accuracies": CPU_ACCURACIES[:1]}),
        RecipeScale("paper", 27_000, options={"accuracies": PAPER_BLOCKS[:1]}),
    ),
    cells=cells,
    figures=_figures,
    shares=HOME,
    stand_ins={"CIFAR-100, ResNet20-4": STAND_INS["accuracy on CIFAR-100"]},
    notes=("The rate is held, and momentum begins anew with every epoch.",),
)
