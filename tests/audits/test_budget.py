"""Who runs, how long and how often, from prices that are known."""

from __future__ import annotations

from typing import Any

import pytest

from leakscope.audits import Plan, Planned, PlannedAttack, make_plan, parse_config
from leakscope.audits import price as price_module
from leakscope.audits.bill import Bill
from leakscope.audits.budget import TooLittleTimeError, afford
from leakscope.audits.execute import scale_steps, shorten
from leakscope.audits.plan import fit_plan
from leakscope.audits.price import Price, PriceList, group_cells, price_cells, what_costs
from leakscope.errors import UsageError
from leakscope.registry import get_attack
from leakscope.runner import CellOutcome, SweepResult
from leakscope.types import Status

GRID = {
    "model_options": {"mlp": {"hidden": [16]}},
    "victims": 1,
    "attacks": ["inverting-gradients", "idlg:retries=1", "fc-inversion"],
    "defences": ["none", "prune:fraction=0.9"],
    "utility": {"rounds": 10},
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(parse_config(GRID))


def priced(plan: Plan, *, step: float = 0.01, fixed: float = 0.1, training: float = 0.1) -> PriceList:
    """Every attack step costs `step`, every closed form `fixed`, every round `training`."""
    prices = {}
    for group in group_cells(plan):
        own = training if group.sample.cell.kind == "utility" else step
        for cell in group.cells:
            prices[cell.label] = Price("measured", group.effort, fixed, own if group.effort.steps else 0.0)
    return PriceList(prices, len(prices), 100.0, 0.0)


def cost(plan: Plan, prices: PriceList, planned: Planned) -> float:
    """Seconds at most of all cells as planned."""
    running = fit_plan(plan, planned)
    limits = {cell.label: cell.limit for cell in running.attacks}
    return sum(prices.prices[cell.label].at_most(limits.get(cell.label)) for cell in running.cells)


def test_steps_fill_the_time_and_not_more(plan: Plan) -> None:
    prices = priced(plan)
    found = afford(plan, prices, seconds=20.0, workers=1)
    assert found.left_out == ()
    assert 19.5 < cost(plan, prices, found) <= 20.0
    geiping, idlg = (found.attacks[name] for name in ("inverting-gradients", "idlg:retries=1"))
    assert 20 < geiping.steps < geiping.of == 300
    # A cell of each gets the same time, and idlg may need it twice.
    assert geiping.steps == pytest.approx(2 * idlg.steps, abs=2)
    assert "fc-inversion" not in found.attacks, "a closed form has no length"


def test_twice_the_workers_do_twice_the_steps(plan: Plan) -> None:
    one, two = (afford(plan, priced(plan), seconds=10.0, workers=n).attacks["inverting-gradients"] for n in (1, 2))
    assert two.steps > 1.8 * one.steps


def test_the_same_prices_give_the_same_plan(plan: Plan) -> None:
    assert afford(plan, priced(plan), seconds=20.0, workers=1) == afford(plan, priced(plan), seconds=20.0, workers=1)


def test_an_hour_goes_into_restarts_up_to_a_bound(plan: Plan) -> None:
    found = afford(plan, priced(plan), seconds=3600.0, workers=1)
    assert found.attacks["inverting-gradients"] == PlannedAttack(steps=300, of=300, restarts=8)
    some = afford(plan, priced(plan), seconds=60.0, workers=1)
    assert 1 < (some.attacks["inverting-gradients"].restarts or 0) < 8
    assert cost(plan, priced(plan), some) <= 60.0


def test_restarts_the_user_chose_stay() -> None:
    plan = make_plan(parse_config({**GRID, "attacks": ["inverting-gradients:restarts=2"], "utility": None}))
    found = afford(plan, priced(plan), seconds=3600.0, workers=1)
    assert found.attacks["inverting-gradients:restarts=2"].restarts == 2


def test_what_is_left_out_is_defended_first_and_never_a_closed_form(plan: Plan) -> None:
    prices = priced(plan, step=0.1, fixed=0.01)
    # 20 steps of 0.1 s: 2 s for each undefended cell, 4 s where one retry is allowed.
    found = afford(plan, prices, seconds=6.1, workers=1)
    assert found.attacks["inverting-gradients"].steps == 20
    runs = [cell.label for cell in fit_plan(plan, found).attacks]
    assert [label.split(": ")[1].split(" against")[0] for label in runs[:3]] == ["fc-inversion"] * 3
    assert runs[3:] == [
        "mlp on digits: inverting-gradients against none, C, seed 0",
        "mlp on digits: idlg:retries=1 against none, C, seed 0",
    ]
    assert len(found.left_out) == len(plan.cells) - len(runs)
    assert "mlp on digits: accuracy under none" in found.left_out


def test_restarts_are_given_up_before_cells() -> None:
    plan = make_plan(parse_config({**GRID, "attacks": ["lbfgs-cosine"], "scenarios": ["B"], "utility": None}))
    found = afford(plan, priced(plan, step=0.16, fixed=0.0), seconds=4.0, workers=1)
    # Three cells of 20 steps: 9.6 s from 16 starts, 0.6 s from one.
    assert found.left_out == ()
    assert found.attacks["lbfgs-cosine"].restarts == 1
    assert found.attacks["lbfgs-cosine"].steps == 4.0 / 3 // 0.01


def test_no_cell_may_be_longer_than_the_budget_however_many_workers(plan: Plan) -> None:
    found = afford(plan, priced(plan, step=0.1), seconds=10.0, workers=64)
    assert found.attacks["inverting-gradients"].steps == 99


def test_training_has_at_most_a_third(plan: Plan) -> None:
    found = afford(plan, priced(plan, training=1.0), seconds=20.0, workers=1)
    assert set(found.left_out) == {
        "mlp on digits: accuracy under none",
        "mlp on digits: accuracy under prune:fraction=0.9",
    }


def test_too_little_for_anything_is_refused_with_a_number(plan: Plan) -> None:
    with pytest.raises(UsageError, match=r"cheapest cell .*fc-inversion.* needs 5 s"):
        afford(plan, priced(plan, fixed=5.0), seconds=2.0, workers=1)
    with pytest.raises(TooLittleTimeError) as refusal:
        afford(plan, priced(plan), seconds=-3.0, workers=1)
    assert refusal.value.needed == pytest.approx(0.1)


def test_refused_cells_cost_nothing_and_still_run(plan: Plan) -> None:
    prices = {key: Price("refused", price.effort, note="no") for key, price in priced(plan).prices.items()}
    found = afford(plan, PriceList(prices, 1, 0.0, 0.0), seconds=5.0, workers=1)
    assert found.left_out == ()
    assert afford(plan, PriceList(prices, 1, 0.0, 0.0), seconds=-1.0, workers=1).left_out == ()


def test_a_cell_that_is_not_changed_keeps_its_key(plan: Plan) -> None:
    lengths = {
        "inverting-gradients": PlannedAttack(steps=300, of=300, restarts=1),
        "idlg:retries=1": PlannedAttack(steps=50, of=300, restarts=1),
    }
    same = {cell.key for cell in fit_plan(plan, Planned(attacks=lengths)).attacks} & {cell.key for cell in plan.attacks}
    assert len(same) == 6, "fc-inversion and inverting-gradients"


@pytest.mark.parametrize(
    ("planned", "needle"),
    [
        ({"attacks": {"dlg": {"steps": 5, "of": 10}}}, "not in attacks"),
        ({"attacks": {"idlg": {"steps": 11, "of": 10}}}, "never made longer"),
        ({"attacks": {"idlg": {"steps": 0, "of": 10}}}, "greater than or equal to 1"),
        ({"atacks": {}}, "Extra inputs"),
    ],
)
def test_a_plan_that_was_edited_badly_is_a_typed_error(planned: object, needle: str) -> None:
    with pytest.raises(UsageError, match=needle):
        make_plan(parse_config({**GRID, "planned": planned}))


def test_groups_join_what_costs_the_same() -> None:
    config = parse_config({**GRID, "seeds": [0, 1], "defences": ["none", "prune:fraction=0.9", "prune:fraction=0.5"]})
    groups = group_cells(make_plan(config))
    attacked = [group for group in groups if group.sample.cell.kind == "attack"]
    assert len(attacked) == 6, "3 unaware, 3 who know of pruning"
    assert sum(len(group.cells) for group in groups) == len(make_plan(config).cells)


@pytest.mark.parametrize(
    "change", [{"victims": 2}, {"batch_size": 2}, {"scenarios": ["B"]}, {"local": {"lr": 0.1}}, {"mode": "train"}]
)
def test_what_changes_the_cost_is_another_group(change: dict[str, Any]) -> None:
    one, other = (group_cells(make_plan(parse_config({**GRID, **more})))[0] for more in ({}, change))
    assert what_costs(one.sample) != what_costs(other.sample)


def _price_from(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, outcomes: dict[str, CellOutcome], *, seconds: float | None = None
) -> tuple[PriceList, dict[str, Any]]:
    """Prices where samples end as `outcomes` say, by attack, others are not reached; and what the runner was told."""
    told: dict[str, Any] = {}

    def run(cells: Any, *_: object, **limits: Any) -> SweepResult:
        told.update(limits, order=[cell.spec["cell"] for cell in cells])
        found = [outcomes.get(spec.get("attack", "training")) for spec in told["order"]]
        return SweepResult(tuple(found), 1, 0, interrupted=False, out_of_time=True)

    monkeypatch.setattr(price_module, "run", run)
    return price_cells(plan, workers=1, seconds=seconds), told


def _sampled(*, fixed: float = 1.0, step: float = 2.0, wall: float = 1.0, cpu: float = 1.0) -> CellOutcome:
    numbers = {"fixed": fixed, "step": step, "mb": 3.0, "wall": wall, "cpu": cpu}
    return CellOutcome(Status.OK, {"how": ""}, measured=numbers)


def _of(plan: Plan, prices: PriceList, attack: str) -> Price:
    """The price of an attack without defence."""
    return next(prices.prices[cell.label] for cell in plan.attacks if cell.attack == attack and cell.defence == "none")


def test_what_there_was_no_time_to_sample_is_priced_like_the_most_expensive_of_its_sort(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = make_plan(parse_config({**GRID, "attacks": ["idlg", "inverting-gradients", "adam-l2", "fc-inversion"]}))
    outcomes = {"idlg": _sampled(step=5.0), "inverting-gradients": _sampled(step=2.0)}
    found, _ = _price_from(monkeypatch, plan, outcomes)
    unsampled, closed = _of(plan, found, "adam-l2"), _of(plan, found, "fc-inversion")
    starts = (unsampled.effort.restarts or 1) / (_of(plan, found, "idlg").effort.restarts or 1)
    assert (unsampled.status, unsampled.fixed, unsampled.step) == ("assumed", starts * 1.0, starts * 5.0)
    assert unsampled.note == "not sampled for lack of time; priced like the most expensive sample"
    # A step tells nothing of a closed form.
    # One victim, and the same attack on an unrelated update.
    assert (closed.status, closed.fixed) == ("assumed", 2 * 30.0)
    assert closed.note == "not sampled for lack of time; priced at 30 s a victim"


@pytest.mark.parametrize(("seconds", "patience"), [(None, 30.0), (600.0, 30.0), (12.0, 12.0), (0.25, 5.0)])
def test_sample_runs_stop_in_time_and_closed_forms_come_first(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, seconds: float | None, patience: float
) -> None:
    late = {"fc-inversion": CellOutcome(Status.TIMEOUT)}
    found, told = _price_from(monkeypatch, plan, late, seconds=seconds)
    assert (told["seconds"], told["timeout"]) == (seconds, patience)
    names = [spec.get("attack", "training") for spec in told["order"]]
    assert names[:2] == ["fc-inversion"] * 2, "undefended, and knowing the defence"
    assert names[-1] == "training"
    assert told["order"][0]["defence"] == "none"
    first = _of(plan, found, "fc-inversion")
    assert (
        first.note == f"not measured: the sample run took more than {patience:g} s; priced at {patience:g} s a victim"
    )
    assert first.fixed == 2 * patience, "a victim, and the attack on an unrelated update"


def test_a_sample_run_that_was_given_up_or_failed_says_so(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = CellOutcome(Status.ERROR, {"error": "ValueError", "message": "no such thing"})
    late = CellOutcome(Status.TIMEOUT, {"error": "Timeout"})
    prices, _ = _price_from(monkeypatch, plan, {"inverting-gradients": late, "fc-inversion": wrong})
    found, failed = (_of(plan, prices, name) for name in ("inverting-gradients", "fc-inversion"))
    assert (found.status, found.step) == ("assumed", 2 * 10.0)
    assert "more than 30 s; priced at 10 s a step" in found.note
    assert (failed.status, failed.seconds(), failed.note) == ("failed", 0.0, "no such thing")


def test_a_busy_machine_makes_everything_cost_more(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = {"fc-inversion": CellOutcome(Status.REFUSED), "inverting-gradients": _sampled(wall=30.0, cpu=10.0)}
    prices, _ = _price_from(monkeypatch, plan, outcomes)
    found = _of(plan, prices, "inverting-gradients")
    assert prices.slowdown == 3.0
    assert found == Price("measured", found.effort, fixed=3.0, step=6.0, mb=3.0)
    idle, _ = _price_from(monkeypatch, plan, {})
    assert idle.slowdown == 1.0


def test_the_longest_cell_bounds_the_wall_time(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    # 9 attack cells: 3 of 0.1 s, 6 of 3.1 s; 2 trainings of 1.1 s.
    whole = 3 * 0.1 + 6 * 3.1 + 2 * 1.1
    assert Bill(plan, priced(plan), 2).seconds == pytest.approx(whole / 2)
    assert Bill(plan, priced(plan), 64).seconds == pytest.approx(whole / 4)
    assert Bill(plan, priced(plan, training=10.0), 64).seconds == pytest.approx(100.1)
    # idlg may need its steps twice.
    assert Bill(plan, priced(plan), 1).at_most == pytest.approx(whole + 3 * 3.0)


@pytest.mark.parametrize("seconds", [7.0, 11.0, 23.0, 37.0, 45.0])
@pytest.mark.parametrize("workers", [1, 3])
def test_time_is_used_up_whatever_its_length(plan: Plan, seconds: float, workers: int) -> None:
    prices = priced(plan)
    found = afford(plan, prices, seconds=seconds, workers=workers)
    spent = cost(plan, prices, found)
    assert spent <= seconds * workers
    longer = {spec: length for spec, length in found.attacks.items() if length.steps < length.of}
    if longer:
        # One more step for every attack would be too much.
        more = {s: n.model_copy(update={"steps": min(n.of, n.steps + 1)}) for s, n in found.attacks.items()}
        assert cost(plan, prices, found.model_copy(update={"attacks": more})) > seconds * workers


def test_no_attack_waits_at_its_fewest_while_another_has_more_time(plan: Plan) -> None:
    # A step of idlg costs ten times as much: cells get the same time, not the same steps.
    prices = dict(priced(plan).prices)
    for cell in plan.attacks:
        if cell.attack.startswith("idlg"):
            prices[cell.label] = Price("measured", prices[cell.label].effort, fixed=0.1, step=0.1)
    found = afford(plan, PriceList(prices, 1, 0.0, 0.0), seconds=60.0, workers=1)
    per_cell = {
        cell.attack: prices[cell.label].at_most(found.attacks[cell.attack])
        for cell in plan.attacks
        if cell.attack in found.attacks and cell.defence == "none"
    }
    slow, fast = per_cell["idlg:retries=1"], per_cell["inverting-gradients"]
    # The fast one is through with all its steps; what it leaves goes to the slow one.
    assert found.attacks["inverting-gradients"].steps == 300
    assert slow > 4 * fast


def test_an_attack_of_another_length_is_cut_to_the_same_share() -> None:
    limit = PlannedAttack(steps=480, of=4_800)
    assert shorten(get_attack("inverting-gradients", schedule="paper"), limit).effort.steps == 480
    assert shorten(get_attack("inverting-gradients", steps=2_000), limit).effort.steps == 200
    assert shorten(get_attack("fc-inversion"), limit) == get_attack("fc-inversion")


def test_a_limit_changes_starts_only_where_it_names_them() -> None:
    attack = get_attack("lbfgs-l2", restarts=5)
    assert shorten(attack, PlannedAttack(steps=30, of=300)).effort.restarts == 5
    assert shorten(attack, PlannedAttack(steps=30, of=300, restarts=2)).effort.restarts == 2


@pytest.mark.parametrize(
    ("own", "steps", "of", "expected"), [(300, 1, 300, 20), (10, 1, 300, 10), (300, 300, 300, 300), (301, 1, 2, 151)]
)
def test_a_share_is_never_below_the_floor_nor_above_the_whole(own: int, steps: int, of: int, expected: int) -> None:
    assert scale_steps(own, steps=steps, of=of) == expected
