"""ATS replication II, Figure 6: privacy and accuracy scores of random policies, split by the ten best operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leakscope.operations.library import first_equal
from leakscope.reproduction import (
    Claim,
    ClaimVerdict,
    PaperNumber,
    PaperRecipe,
    RecipeCell,
    RecipeScale,
    Results,
    call_cell,
    draw_victims,
    judge_estimate,
    network,
    untestable,
)
from leakscope.reproduction.drawing import Drawing, draw_points
from leakscope.reproduction.papers import ATS_TWO
from leakscope.reproduction.statistics import share_interval, welch_interval
from reproductions.ats_one.figure_6 import CPU_RESNET, PAPER_BLOCKS
from reproductions.ats_one.table_1 import SMOKE_BLOCK
from reproductions.ats_policies import NONE, NUMBERS, policy_network
from reproductions.ats_two.figure_5 import TOP_TEN
from reproductions.ats_two.scores import draw_policies

NAME = "ats_two/figure-6"
TOP_FIVE = TOP_TEN[:5]
CHUNK = 10


def cells(scale: RecipeScale) -> Iterator[RecipeCell]:
    """Ten policies a cell, none first; S_pri on the network of the search, S_acc on an untrained one."""
    policies = draw_policies(NAME, scale.name, count=scale.options["policies"])
    yield from score_cells(scale, {NONE: [NUMBERS[NONE]]})
    chunks = {str(start): policies[start : start + CHUNK] for start in range(0, len(policies), CHUNK)}
    yield from score_cells(scale, chunks)


def score_cells(scale: RecipeScale, chunks: dict[str, list[str]]) -> Iterator[RecipeCell]:
    """The scores of the policies of each chunk: one cell for S_pri, one for S_acc."""
    (setting,) = scale.options["blocks"]
    data = setting["name"]
    pictures, others = (
        draw_victims(NAME, scale.name, count=count, among=setting["among"], data=data)
        for count in (setting["victims"], scale.options["accuracy_pictures"])
    )
    for chunk, policies in chunks.items():
        for score, function, chosen, options in (
            ("S_pri", "privacy", pictures, {"every": scale.options["every"]}),
            ("S_acc", "accuracy", others, {}),
        ):
            trained = policy_network(setting, NUMBERS[NONE])
            yield call_cell(
                {"chunk": chunk, "score": score},
                f"reproductions.ats_two.policy_scores:{function}",
                reads=[{"name": data, "split": "test", "indices": [place for one in chosen for place in one]}],
                policies=policies,
                data=data,
                indices=chosen,
                model=trained if score == "S_pri" else network(setting["network"], seed=1),
                **options,
            )


def scored(results: Results, metric: str) -> dict[str, float]:
    """The score of every random policy."""
    found = {}
    for one in results:
        if one.is_ok and one.units(metric) and str(one.cell.tags["chunk"]).isdigit():
            policies: Sequence[str] = one.cell.spec["settings"]["policies"]  # type: ignore[index,assignment,call-overload]
            found |= dict(zip(policies, one.units(metric), strict=True))
    return found


def of_none(results: Results, metric: str) -> float | None:
    """The score without a policy."""
    found = results.where(chunk=NONE).units(metric)
    return found[0] if found else None


def holds_best(policy: str, *, least: int = 2) -> bool:
    """Whether so many of a policy's slots hold one of the ten best operations, or one that does the same."""
    best = {first_equal(number) for number in TOP_TEN}
    return sum(first_equal(int(slot)) in best for slot in policy.split("-")) >= least


def _worse_than_none(metric: str, *, higher_is_worse: bool):
    """Share of the random policies that score worse than none: is it more than half?"""

    def judge(results: Results) -> ClaimVerdict:
        scores, none = list(scored(results, metric).values()), of_none(results, metric)
        if none is None or len(scores) < 2:
            return untestable("no scores", n=len(scores))
        worse = sum((value > none) if higher_is_worse else (value < none) for value in scores)
        return judge_estimate(share_interval(worse, len(scores)), least=0.5, unit="share", note=f"none: {none:.4g}")

    return judge


def _split(results: Results) -> tuple[list[float], list[float]]:
    scores = scored(results, "privacy")
    groups = [[value for policy, value in scores.items() if holds_best(policy) is best] for best in (True, False)]
    return groups[0], groups[1]


def _best_score_lower(results: Results) -> ClaimVerdict:
    best, others = _split(results)
    if min(len(best), len(others)) < 2:
        return untestable(f"{len(best)} policies with two of the ten best", n=len(best))
    return judge_estimate(welch_interval(others, best), unit="S_pri")


def _figures(results: Results) -> list[Drawing]:
    privacy, accuracy = scored(results, "privacy"), scored(results, "accuracy_score")
    both = [policy for policy in privacy if policy in accuracy]
    groups = {
        "at least two of the ten best": [(privacy[one], accuracy[one]) for one in both if holds_best(one)],
        "others": [(privacy[one], accuracy[one]) for one in both if not holds_best(one)],
    }
    drawn = {key: points for key, points in groups.items() if points}
    labels = {"x_label": "privacy score S_pri", "y_label": "accuracy score S_acc"}
    return [draw_points(drawn, title="Scores of random policies", name="policies", **labels)]


RECIPE = PaperRecipe(
    name=NAME,
    paper=ATS_TWO,
    item="Figure 6",
    title="S_pri and S_acc of random policies, split by the ten best single operations",
    scenario="no attack: scores that need the data and a network",
    claims=(
        Claim(
            "worse-privacy-than-none",
            "Most random policies have a worse privacy score than no policy.",
            "most: 0.38 on average against 0.32 without a policy",
            _worse_than_none("privacy", higher_is_worse=True),
        ),
        Claim(
            "worse-accuracy-than-none",
            "Most random policies have a worse accuracy score than no policy.",
            "most policies score worse than none on both scores",
            _worse_than_none("accuracy_score", higher_is_worse=False),
        ),
        Claim(
            "best-operations-score-better",
            "Policies with at least two of the ten best single operations have a lower privacy score than the others.",
            "0.31 on average against 0.38 over all",
            _best_score_lower,
        ),
    ),
    numbers=(
        PaperNumber("section 5.2", "no policy", "S_pri", 0.32, "", metric="privacy", tags={"chunk": NONE}),
        PaperNumber(
            "section 5.2", "random policies", "mean S_pri", 0.38, "", metric="privacy", tags={"score": "S_pri"}
        ),
        PaperNumber(
            "section 5.2", "two of the ten best", "mean S_pri", 0.31, "", metric="privacy", why_not="see the claim"
        ),
        PaperNumber("Figure 6", "no policy", "S_acc", None, "", metric="accuracy_score", tags={"chunk": NONE}),
        PaperNumber("Figure 6", "threshold", "S_acc", -85.0, "", why_not="it is made for 63 pictures of 100 classes"),
    ),
    scales=(
        RecipeScale(
            "smoke",
            0.01,
            options={
                "blocks": [SMOKE_BLOCK | {"victims": 2}],
                "policies": 12,
                "every": 5,
                "accuracy_pictures": 6,
            },
        ),
        # 150 policies: 6 pictures of 0.25 s, and 40 pictures at once in 2 s; a network of 46 s.
        RecipeScale("cpu", 10, options={"blocks": [CPU_RESNET], "policies": 150, "every": 5, "accuracy_pictures": 40}),
        RecipeScale(
            "paper",
            3_500,
            options={"blocks": PAPER_BLOCKS[:1], "policies": 1_500, "every": 1, "accuracy_pictures": 100},
        ),
    ),
    cells=cells,
    figures=_figures,
    stand_ins={
        "1,500 policies, 100 pictures": "150 policies; S_pri of 6 pictures at every fifth point of the line, S_acc of "
        "40 pictures, one for each class",
        "a network trained for 50 epochs on a tenth": "two epochs on the 486 CIFAR-100 pictures at hand",
    },
    notes=(
        "S_acc is that of the released code: a negative sum, higher is better; the papers write a mean with the other "
        "sign. Its threshold of −85 has a meaning only for the number of pictures it was made for.",
        "The second number is over the random policies and none.",
        "Operations that do the same count as one of the ten best.",
    ),
)
