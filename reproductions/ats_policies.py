"""What the recipes of both ATS replications share: networks trained with policies, their cells, and judges.

"Trained" PSNR is against the transformed picture, as both papers measure it; "private" PSNR is against the picture that
the client owns. Without a policy the two are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

from leakscope.reproduction import (
    CellResult,
    ClaimVerdict,
    RecipeCell,
    RecipeScale,
    Results,
    attack_cell,
    draw_victims,
    judge_estimate,
    network,
    training,
    training_cell,
    untestable,
)
from leakscope.reproduction.judging import FEWEST
from leakscope.reproduction.recipe import Tag
from leakscope.reproduction.statistics import paired_interval
from leakscope.types import LocalTraining

Against = Literal["trained", "private"]
Json = dict[str, Any]

NONE = "None"
# What an attack without a policy meets; 28 leaves pictures alone.
NUMBERS = {NONE: "28", "Random": "19-1-18"}
# The recipe whose run folder holds the cells that several tables and figures show.
HOME = "ats_one/table-1"
EXPECTED = {
    "unfinished": "the distance still fell at the last step: the cell is left out of every claim",
    "unexplained": "the result explains too little of the update: the cell is left out of every claim",
    "diverged": "the attack diverged: the cell is left out of every claim",
}


# The papers' objective, which compares all layers, by our optimiser: fewer steps, the same distance.
SEARCH = "inverting-gradients:layers=all"


def attack_of(scale: RecipeScale) -> str:
    """The scale's attack, of as many steps as it says."""
    attack = scale.options["attack"]
    return f"{attack}{',' if ':' in attack else ':'}steps={scale.steps}"


def transforms_spec(policy: str, *, augment: str = "none") -> str:
    """The defence of a policy by its numbers; `none` where it does nothing."""
    if policy == NUMBERS[NONE] and augment == "none":
        return "none"
    return f"transforms:policy={policy},augment={augment}"


def policy_network(setting: Mapping[str, Any], policy: str, *, defence: str | None = None, **options: Any) -> Json:
    """The network of a setting, trained with a policy behind random crops and flips, as both papers train it.

    Args:
        setting: `network`, `train_on`, and of the training `epochs` (0 leaves it untrained), `examples`, `batch_size`
            and `decay_every`.
        policy: by its numbers.
        defence: of updates, beside the policy.
        options: of the network.
    """
    epochs = setting["epochs"]
    if not epochs:
        return network(setting["network"], seed=0, **options)
    how = training(
        setting["train_on"],
        rounds=1,
        local=sgd(epochs=epochs, batch_size=setting.get("batch_size", 32), decay_every=setting.get("decay_every")),
        defence="+".join(filter(None, (transforms_spec(policy, augment="crop-flip"), defence))),
        examples=setting.get("examples"),
        test_examples=100,
        held_out=0.0,
    )
    return network(setting["network"], seed=0, trained=how, **options)


def sgd(*, epochs: int, batch_size: int = 32, lr: float = 0.1, decay_every: int | None = None) -> LocalTraining:
    """SGD as published: Nesterov momentum 0.9, weight decay 5e-4; the rate falls to a tenth every so many steps."""
    return LocalTraining(
        lr=lr,
        epochs=epochs,
        batch_size=batch_size,
        momentum=0.9,
        nesterov=True,
        weight_decay=5e-4,
        shuffle=True,
        schedule="constant" if decay_every is None else "step",
        decay_every=decay_every,
    )


def policy_cells(
    scale: RecipeScale,
    setting: Mapping[str, Any],
    policies: Mapping[str, str],
    *,
    victims_of: str = HOME,
    trained_with: str | None = None,
    augment: str = "none",
    tags: Mapping[str, Tag] | None = None,
    attack: str | None = None,
) -> Iterator[RecipeCell]:
    """One attack on every victim behind every policy, each on the network that was trained with it.

    Args:
        scale: `options["attack"]` is the attack, of `steps` steps.
        setting: one of the table's blocks: `data` and `model` as the paper names them, `name`, `network`, `train_on`,
            `victims`, `among`, `size`.
        policies: numbers by the paper's name.
        victims_of: the recipe by whose name victims are drawn.
        trained_with: one policy for the training of all networks, by its numbers.
        augment: "crop-flip" attacks pictures that were cropped and flipped, too, as the released code does.
        tags: further ones.
        attack: another than the scale's.
    """
    victims = draw_victims(
        victims_of, scale.name, count=setting["victims"], among=setting["among"], data=setting["name"]
    )
    options = setting.get("options", {})
    for shown, numbers in policies.items():
        for victim, batch in enumerate(victims):
            yield attack_cell(
                {"data": setting["data"], "model": setting["model"], "policy": shown, "victim": victim, **(tags or {})},
                model=policy_network(setting, numbers if trained_with is None else trained_with, **options),
                data=setting["name"],
                indices=[batch],
                attack=attack or attack_of(scale),
                defence=transforms_spec(numbers, augment=augment),
                scenario="B",
                seed=victim,
                size=setting.get("size"),
                pictures=int(victim < 2),
                expected=EXPECTED,
            )


def accuracy_cells(scale: RecipeScale, setting: Mapping[str, Any], policies: Mapping[str, str]) -> Iterator[RecipeCell]:
    """Central training with every policy, one test after each epoch, one run for each seed."""
    for seed in scale.seeds:
        for shown, numbers in policies.items():
            yield training_cell(
                {"data": setting["data"], "model": setting["model"], "policy": shown, "seed": seed},
                model=network(setting["network"], seed=seed, mode="train", **setting.get("options", {})),
                how=training(
                    setting["train_on"],
                    rounds=setting["rounds"],
                    local=sgd(epochs=1, batch_size=setting.get("batch_size", 64), lr=setting.get("lr", 0.05)),
                    defence=transforms_spec(numbers, augment="crop-flip"),
                    examples=setting.get("examples"),
                    test_examples=setting.get("test_examples"),
                    held_out=0.0,
                    seed=seed,
                ),
            )


def reached(one: CellResult, against: Against = "trained") -> list[float]:
    """PSNR of every victim of a cell; the picture that was trained on is the private one where nothing changed it."""
    return (one.units("trained_psnr") if against == "trained" else []) or one.units("psnr")


def pair_cells(
    results: Results, ours: Mapping[str, Tag], others: Mapping[str, Tag], *, against: Against = "trained"
) -> tuple[list[float], list[float]]:
    """PSNR of cells tagged `ours` beside that of cells with all other tags in common; of those that ended well.

    A cell with a tag more is another one: a unit is never counted twice.
    """
    left: list[float] = []
    right: list[float] = []
    for one in results.where(**ours):
        rest = {name: value for name, value in one.cell.tags.items() if name not in {**ours, **others}}
        for other in results.where(**others, **rest):
            is_other = set(other.cell.tags) == {*others, *rest} and one.is_ok and other.is_ok
            if is_other and reached(one, against) and reached(other, against):
                left += reached(one, against)
                right += reached(other, against)
    return left, right


def psnr_above(
    ours: Mapping[str, Tag], others: Mapping[str, Tag], *, against: Against = "trained", least: float = 0.0
) -> Callable[[Results], ClaimVerdict]:
    """Whether PSNR of `ours` is above that of `others` by more than `least`, victim by victim.

    Only cells that ended well count: an attack that was cut short is no evidence that a policy protects.
    """

    def judge(results: Results) -> ClaimVerdict:
        left, right = pair_cells(results, ours, others, against=against)
        if len(left) < FEWEST:
            return untestable(f"{len(left)} pairs ended well; {FEWEST} are the fewest", n=len(left))
        told = f"{fmean(left):.4g} against {fmean(right):.4g} dB, against the {against} picture"
        return judge_estimate(paired_interval(left, right), least=least, unit="dB", note=told)

    return judge


def psnr_metric(policy: str) -> str:
    """The value that the papers print for a row: without a policy there is only one picture."""
    return "psnr" if policy.startswith(NONE) else "trained_psnr"


def pick(results: Results, names: Sequence[str], tag: str = "policy") -> Results:
    """The cells whose tag is one of these."""
    return Results(tuple(one for one in results if one.cell.tags.get(tag) in names))
