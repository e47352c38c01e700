"""Sample runs, bills and runs within a budget, on a network small enough to do all of it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from leakscope.audits import Bill, CampaignResult, Plan, parse_config, price_campaign, run_campaign
from leakscope.audits import budget as budget_module
from leakscope.audits import run as run_module
from leakscope.audits.plan import fit_plan, make_plan
from leakscope.audits.price import Price, PriceList, group_cells
from leakscope.audits.sample_run import run_sample
from leakscope.errors import UsageError
from leakscope.report import SelfCheck
from leakscope.types import Status

pytestmark = pytest.mark.usefixtures("inline_workers")

TINY = {
    "model_options": {"mlp": {"hidden": [16], "activation": "sigmoid"}},
    "victims": 2,
    "attacks": ["inverting-gradients:steps=3000", "adam-cosine", "fc-inversion"],
    "defences": ["none", "gaussian-noise:sigma=0.1"],
    "utility": None,
    "budget": "10m",
    "workers": 1,
}
LONG = "inverting-gradients:steps=3000"
STRONG = "inverting-gradients:tv=1.0"


@pytest.fixture(scope="module", autouse=True)
def _known_prices() -> Any:
    """Prices at which 3,000 steps do not fit ten minutes, so that the plan does not hang on this machine's mood."""

    def known(plan: Plan, *, workers: int, seconds: float | None = None) -> PriceList:
        assert workers == 1
        assert seconds == 150.0, "a quarter of the budget"
        prices = {}
        for group in group_cells(plan):
            step = 2.0 if group.effort.steps else 0.0
            price = Price("measured", group.effort, fixed=1.0, step=step)
            if group.sample.cell.kind == "attack" and group.sample.cell.attack == "adam-cosine":
                price = Price("refused", group.effort)
            prices |= {cell.label: price for cell in group.cells}
        return PriceList(prices, 1, 0.0, 0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget_module, "price_cells", known)
        # Tested elsewhere, and it takes longer than everything here.
        patch.setattr(run_module, "require_self_check", lambda: SelfCheck(name="planted image", psnr=60.0, passed=True))
        yield


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> CampaignResult:
    """A run whose time was over when its first cell began."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "_left", lambda budget, began: 0.001)
        return run_campaign(parse_config(TINY), tmp_path_factory.mktemp("budget") / "run", quiet=True)


@pytest.fixture(scope="module")
def finished(stopped: CampaignResult) -> CampaignResult:
    """The same run, continued to its end."""
    return run_campaign(parse_config(TINY), stopped.directory, quiet=True)


def test_a_run_that_is_out_of_time_says_so_and_what_it_found_counts(stopped: CampaignResult) -> None:
    assert stopped.sweep.out_of_time
    assert stopped.exit_code == 3, "the run is not done"
    assert stopped.summary.verdict.status == "leak"
    assert stopped.summary.budget.unfinished == 9
    first, *others = stopped.summary.cells
    assert (first.attack, first.status) == ("fc-inversion", "ok")
    assert {cell.error for cell in others} == {"the budget was over before it ran"}
    assert any("the same command continues" in sentence for sentence in stopped.summary.verdict.sentences)


def test_continuing_follows_the_plan_that_is_written_down(stopped: CampaignResult, finished: CampaignResult) -> None:
    planned = yaml.safe_load((finished.directory / "config.yaml").read_text())["planned"]["attacks"]
    assert finished.summary.config == stopped.summary.config
    assert 20 < planned[LONG]["steps"] < planned[LONG]["of"] == 3_000
    assert (finished.sweep.executed, finished.sweep.reused) == (9, 1)
    assert not finished.sweep.out_of_time
    assert finished.exit_code == 0


def test_each_attacker_runs_as_long_as_planned(finished: CampaignResult) -> None:
    steps = finished.summary.config["planned"]["attacks"][LONG]["steps"]
    cells = [cell for cell in finished.summary.cells if cell.attack == LONG]
    unaware = [cell.evaluations for cell in cells if not cell.adaptive]
    knowing = [cell.evaluations for cell in cells if cell.adaptive]
    assert unaware == [2 * steps] * 2, "two victims"
    assert knowing == [2 * steps]
    assert all(f"{steps} of 3000 steps" in cell.notes[0] for cell in cells)


def test_the_verdict_carries_the_caveat(finished: CampaignResult) -> None:
    found = finished.summary
    assert found.budget.seconds == 600
    assert found.budget.shortened == [LONG, STRONG]
    caveat = next(sentence for sentence in found.verdict.sentences if "weaker attacker" in sentence)
    assert f"The budget of 10 min shortened {LONG} (" in caveat
    assert "adam-cosine" not in caveat
    assert "A shortened attack is a weaker attacker" in (finished.directory / "report.html").read_text()


def test_closed_forms_come_first_and_refusals_stay_refusals(finished: CampaignResult) -> None:
    cells = finished.summary.cells
    assert [cell.attack for cell in cells[:3]] == ["fc-inversion"] * 3
    assert {cell.status for cell in cells if cell.attack == "adam-cosine"} == {"refused"}


def test_the_written_configuration_gives_the_same_bytes_elsewhere(finished: CampaignResult, tmp_path: Path) -> None:
    again = run_campaign(finished.directory / "config.yaml", tmp_path / "run", quiet=True)
    files = [{p.name: p.read_bytes() for p in (run.directory / "cells").iterdir()} for run in (again, finished)]
    assert files[0] == files[1]
    assert (tmp_path / "run" / "config.yaml").read_bytes() == (finished.directory / "config.yaml").read_bytes()


def test_another_budget_is_another_run(finished: CampaignResult) -> None:
    with pytest.raises(UsageError, match="other settings"):
        run_campaign(parse_config({**TINY, "budget": "5m"}), finished.directory, quiet=True)


def test_a_budget_too_small_for_anything_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_module, "price_cells", lambda plan, workers, seconds: _expensive(plan))
    with pytest.raises(UsageError, match="smaller network or fewer victims"):
        run_campaign(parse_config({**TINY, "budget": "20s"}), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def _expensive(plan: Plan, *, seconds: float = 0.0) -> PriceList:
    groups = group_cells(plan)
    prices = {cell.label: Price("measured", group.effort, fixed=60.0) for group in groups for cell in group.cells}
    return PriceList(prices, 1, 0.0, seconds)


def test_a_refusal_says_where_the_time_went_and_how_much_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def quoted(plan: Plan, *, workers: int, seconds: float | None = None) -> PriceList:
        assert seconds is not None
        return _expensive(plan, seconds=max(9.0, seconds))

    monkeypatch.setattr(budget_module, "price_cells", quoted)
    plan = make_plan(parse_config(TINY))
    with pytest.raises(UsageError) as refusal:
        budget_module.plan_within(14.0, plan, workers=1)
    text = str(refusal.value)
    assert "the budget of 14 s leaves 0 s for attacks: the self-check takes 3 s, sample runs took 9 s" in text
    assert "mlp on digits: inverting-gradients:steps=3000 against none, C, seed 0) needs 1 min" in text
    assert "needs 1 min even at its fewest steps" in text
    found = re.search(r"give (\d+) min (\d+) s or more", text)
    assert found is not None
    enough = 60 * int(found[1]) + int(found[2])
    _, planned = budget_module.plan_within(enough, plan, workers=1)
    assert fit_plan(plan, planned).attacks[0].attack == "fc-inversion"


def test_a_budget_below_the_overhead_is_refused_before_any_sample_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(budget_module, "price_cells", lambda *_, **__: pytest.fail("sampled"))
    with pytest.raises(UsageError, match=r"budget of 1 s is over before any attack begins.* give about \d+ s or more"):
        run_campaign(parse_config({**TINY, "budget": "1s"}), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("workers", [0, -1])
def test_workers_below_one_are_refused_before_any_work(
    workers: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_module, "require_self_check", lambda: pytest.fail("checked"))
    with pytest.raises(UsageError, match=rf"workers must be ≥ 1, got {workers}"):
        run_campaign(parse_config(TINY), tmp_path / "run", quiet=True, workers=workers)
    with pytest.raises(UsageError, match=rf"workers must be ≥ 1, got {workers}"):
        price_campaign(parse_config(TINY), workers=workers)
    assert not (tmp_path / "run").exists()


def test_a_dry_run_samples_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float | None] = []

    def price(plan: Plan, *, workers: int, seconds: float | None = None) -> PriceList:
        told.append(seconds)
        return PriceList({}, 0, 0.0, 0.0)

    monkeypatch.setattr(run_module, "price_cells", price)
    price_campaign(parse_config({**TINY, "budget": None}))
    assert told == [45.0]


def _check_overhead(bill: Bill) -> None:
    """Nothing of it is zero: a run starts, checks itself, starts processes and writes a report."""
    found = bill.overhead
    assert found.start > 0
    assert 0.3 <= found.check < 3.0, "as long as the self-check took"
    assert found.workers > 0.2, "no process imports torch faster"
    assert found.report == pytest.approx(1.0 + 0.005 * len(bill.plan.cells))
    assert bill.to_dict()["totals"]["overhead"]["seconds"] == pytest.approx(
        found.start + found.check + found.workers + found.report
    )
    assert bill.at_most - bill.seconds == pytest.approx(
        sum(line.at_most for line in bill.lines) - sum(line.seconds for line in bill.lines)
    ), "overhead is paid once in both"


@pytest.mark.slow
def test_real_sample_runs_price_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_slowly() -> SelfCheck:
        time.sleep(0.3)
        return SelfCheck(name="planted image", psnr=60.0, passed=True)

    monkeypatch.setattr(run_module, "require_self_check", check_slowly)
    # On a machine that is busy with other tests, some would be assumed and not sampled.
    monkeypatch.setattr(run_module, "_MOST_SAMPLE_SECONDS", None)
    bill = price_campaign(parse_config({**TINY, "budget": None, "utility": {"rounds": 50}}))
    long, refused, closed, strong, training = bill.lines
    assert bill.prices.groups == 9, (
        "three attacks, unaware and knowing, one strong under noise, training with and without it"
    )
    assert (strong.attack, strong.cells) == (STRONG, 1)
    assert (long.attack, long.steps, long.cells) == (LONG, 3_000, 3)
    # Thousands of steps cost more than a division, and no less than a tenth of a millisecond each.
    assert closed.seconds_per_cell < long.seconds_per_cell
    assert long.seconds_per_cell > 3_000 * 1e-4
    assert long.seconds == pytest.approx(3 * long.seconds_per_cell)
    assert refused.notes[0].startswith("refused: attack 'adam-cosine' needs the labels")
    assert refused.at_most == 0
    assert training.steps == 50
    assert training.seconds_per_cell > 0
    assert bill.seconds == pytest.approx(bill.overhead.seconds + sum(line.seconds for line in bill.lines))
    _check_overhead(bill)
    assert 50 < bill.mb < 5_000
    assert json.loads(json.dumps(bill.to_dict()))["totals"]["attack_cells"] == 10


def test_a_sample_run_reads_no_private_example(monkeypatch: pytest.MonkeyPatch) -> None:
    from leakscope import data

    samples = [group.sample for group in group_cells(make_plan(parse_config(TINY)))]
    spec = next(
        s.model_dump(mode="json") for s in samples if s.cell.kind == "attack" and s.cell.attack == "fc-inversion"
    )
    monkeypatch.setattr(data, "load", lambda *_, **__: pytest.fail("private data was read"))
    found = run_sample(spec)
    assert found.status is Status.OK
    assert found.measured["fixed"] > 0
    assert found.measured["step"] == 0
