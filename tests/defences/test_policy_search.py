"""The search for policies: candidates, race, stored scores, and what the search says about itself."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from torch import nn

from leakscope.defences.transforms import optuna_search
from leakscope.defences.transforms.candidates import draw_candidates, policy_of
from leakscope.defences.transforms.policy import Policy
from leakscope.defences.transforms.privacy_score import privacy_scores
from leakscope.defences.transforms.race import Rung, plan_rungs, race
from leakscope.defences.transforms.score_bench import (
    ACCURACY,
    PRIVACY,
    NetworkSource,
    ScoreBench,
    batch_positions,
    measure_key,
    score_positions,
)
from leakscope.defences.transforms.score_book import ScoreBook
from leakscope.defences.transforms.score_pool import ScorePool, open_pool
from leakscope.defences.transforms.score_store import FILE, Key, open_store
from leakscope.defences.transforms.search import SearchSettings, search
from leakscope.defences.transforms.search_report import describe, diversity, in_words, noise_floor, pearson
from leakscope.defences.transforms.tiny_model import TinyTraining, train_tiny
from leakscope.errors import BadInputError, MissingExtraError, UnsuitableError, UsageError
from leakscope.progress import show_progress
from leakscope.rng import generator, uniform
from leakscope.types import Batch

P = Policy.parse


@pytest.fixture(scope="module")
def bench() -> ScoreBench:
    network = NetworkSource("mlp", (1, 6, 6), 4)
    inputs = uniform((8, 1, 6, 6), generator(0, "pictures"))
    pictures = Batch(inputs, torch.tensor([0, 1, 2, 3] * 2))
    return ScoreBench(pictures, (inputs[:4], inputs[4:]), network, network.build(3).state_dict())


@contextmanager
def opened(bench: ScoreBench, folder: Path) -> Iterator[ScoreBook]:
    with (
        open_store(folder, bench.identity()) as store,
        open_pool(bench, workers=1) as pool,
        show_progress(quiet=True) as progress,
        progress.count("scores") as counter,
    ):
        yield ScoreBook(bench, pool, store, counter)


def test_candidates_have_three_slots_of_fifty_operations_or_none():
    found = draw_candidates(3_000)
    assert len(found) == len(set(found))
    assert all(policy == policy.canonical() for policy in found)
    lengths = {len(policy.parts[0]) for policy in found}
    assert lengths == {1, 2, 3}
    used = {index for policy in found for index in policy.parts[0]}
    # One number for each of the 28 functions; the identity stands alone.
    assert len(used - {28}) == 27
    assert draw_candidates(200) == found[: len(draw_candidates(200))]
    assert draw_candidates(200, seed=1) != draw_candidates(200)
    # A slot is empty as often as it holds any other number, and the two identities do nothing either.
    single = sum(len(policy_of(row).parts[0]) < 3 for row in _rows(3_000)) / 3_000
    assert single == pytest.approx(1 - (48 / 51) ** 3, abs=0.02)


def _rows(count: int) -> list[list[int]]:
    return torch.randint(-1, 50, (count, 3), generator=generator(0, "search", "candidates")).tolist()


def test_equal_policies_have_one_form_and_empty_slots_are_left_out():
    assert policy_of([-1, 43, 49]) == policy_of([48, -1, 8]) == P("24-8")
    assert policy_of([-1, -1, -1]) == policy_of([28, 39, -1]) == P("28")
    assert policy_of([3, -1, 1]) != policy_of([1, 3, -1])
    with pytest.raises(UsageError, match="no operation 50"):
        policy_of([50, 1, 1])
    with pytest.raises(UsageError, match="candidates must be a whole number ≥ 1, got 0"):
        draw_candidates(0)


def test_rungs_halve_the_candidates_and_double_the_pictures():
    assert plan_rungs(200, pictures=100, first=3, finalists=10) == [
        Rung(200, 3),
        Rung(100, 6),
        Rung(50, 12),
        Rung(25, 24),
        Rung(13, 48),
        Rung(10, 100),
    ]
    assert plan_rungs(8, pictures=100, first=3, finalists=10) == [Rung(8, 100)]
    assert plan_rungs(40, pictures=12, first=12, finalists=5) == [Rung(40, 12)]
    coarse = plan_rungs(200, pictures=100, first=3, finalists=10, every=5)
    assert [rung.every for rung in coarse] == [5] * 5 + [1]
    assert plan_rungs(8, pictures=100, first=3, finalists=10, every=5) == [Rung(8, 100, 1)]
    assert plan_rungs(16, pictures=40, first=4, finalists=2) == [Rung(16, 4), Rung(8, 8), Rung(4, 16), Rung(2, 40)]


class Table:
    """Scores that are known beforehand; remembers what was asked."""

    def __init__(self, values: dict[Policy, list[float]], refused: Sequence[Policy] = ()) -> None:
        self.values, self.refused, self.asked, self.cost = values, refused, [], {}

    def measure(self, policies: Sequence[Policy], rung: Rung) -> dict[Policy, float]:
        pictures = rung.pictures
        assert len(policies) == rung.candidates
        for one in policies:
            self.cost[one] = pictures
        return {one: sum(self.values[one][:pictures]) / pictures for one in policies}

    def accept(self, policies: Sequence[Policy]) -> dict[Policy, bool]:
        self.asked += policies
        return {one: one not in self.refused for one in policies}


def test_a_race_finds_the_best_and_spends_little_on_the_rest():
    policies = draw_candidates(70)[:64]
    common = uniform((32,), generator(1)).tolist()
    table = Table({one: [place / 640 + noise for noise in common] for place, one in enumerate(policies)})
    found = race(policies, measure=table.measure, accept=table.accept, pictures=32, first=2, finalists=4)
    assert [one for one, _ in found.ranking] == policies[:4]
    assert found.ranking[1][1] == pytest.approx(1 / 640 + sum(common) / 32)
    assert found.rungs == (Rung(64, 2), Rung(32, 4), Rung(16, 8), Rung(8, 16), Rung(4, 32))
    assert [table.cost[one] for one in (policies[0], policies[5], policies[63])] == [32, 16, 2]
    # Accuracy is asked of the half that goes on.
    assert set(table.asked) == set(policies[:32])


def test_rejected_policies_are_replaced_by_the_next_best():
    policies = draw_candidates(20)[:16]
    table = Table({one: [place / 100] * 8 for place, one in enumerate(policies)}, refused=policies[:3])
    found = race(policies, measure=table.measure, accept=table.accept, pictures=8, first=2, finalists=4)
    assert [one for one, _ in found.ranking] == policies[3:7]
    assert set(found.rejected) == set(policies[:3])
    assert found.rungs[1] == Rung(8, 4)
    nothing = Table(table.values, refused=policies)
    assert (
        race(policies, measure=nothing.measure, accept=nothing.accept, pictures=8, first=2, finalists=4).ranking == ()
    )


def test_equal_scores_are_ordered_by_policy_and_not_by_chance():
    policies = draw_candidates(8)[:6]
    table = Table({one: [0.5] * 4 for one in policies})
    found = race(policies[::-1], measure=table.measure, accept=table.accept, pictures=4, first=4, finalists=3)
    assert [one for one, _ in found.ranking] == sorted(policies)[:3]


def test_pictures_are_the_released_ones_where_there_are_enough():
    assert score_positions(10_000, 100) == list(range(200, 700, 5))
    assert score_positions(20, 4) == [0, 5, 10, 15]
    with pytest.raises(UsageError, match="images must be a whole number from 1 to 20"):
        score_positions(20, 21)
    assert batch_positions(torch.tensor([1, 1, 0, 2, 0])) == [[0, 2, 3]]


def test_scores_are_stored_row_by_row_and_never_computed_again(bench, tmp_path, monkeypatch):
    policies = draw_candidates(6)[:4]
    with opened(bench, tmp_path) as book:
        first = book.privacy(policies, 3)
        accuracy = book.accuracy(policies[:2])
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        rows = connection.execute("SELECT kind, policy, draw, place FROM score").fetchall()
    assert len(rows) == 4 * 3 + 2 * 2

    def refuse(_pool: object, _work: object, tasks: Sequence[Key], **_: object) -> None:
        assert not tasks, "computed again"

    monkeypatch.setattr(ScorePool, "run", refuse)
    with opened(bench, tmp_path) as book:
        assert book.privacy(policies, 3) == first
        assert book.accuracy(policies[:2]) == accuracy
    values = [measure_key(bench, Key(PRIVACY, str(policies[0]), 0, place)) for place in range(3)]
    assert first[policies[0]] == pytest.approx(sum(values) / 3, abs=1e-12)


def test_coarse_scores_are_kept_apart_from_full_ones(bench, tmp_path):
    policies = draw_candidates(6)[:4]
    with opened(bench, tmp_path) as book:
        coarse = book.privacy(policies, 3, every=5)
        full = book.privacy(policies, 3)
    for one in policies:
        scores = [privacy_scores(one, bench.pictures, model=bench.trained, every=every)[:3].mean() for every in (5, 1)]
        assert [coarse[one], full[one]] == pytest.approx([float(score) for score in scores], abs=1e-12)
        assert coarse[one] != full[one]
    with opened(bench, tmp_path) as book:
        assert book.privacy(policies, 3, every=5) == coarse
        assert book.privacy(policies, 3) == full


@pytest.mark.parametrize(
    ("mode", "kinds", "every"),
    [
        ("race", {PRIVACY: 6 * 8, "privacy, every 5": 22 * 2 + 11 * 2}, [5, 5, 1]),
        ("exhaustive", {PRIVACY: 22 * 8}, [1]),
    ],
)
def test_a_race_is_coarse_until_its_last_round_and_other_modes_are_not(mode, kinds, every, bench, tmp_path):
    with opened(bench, tmp_path) as book:
        found = search(book, SearchSettings(candidates=24, top=4, first=2, threshold=-1e9, mode=mode))
        assert book.planned == sum({PRIVACY: 21, ACCURACY: 5}.get(key.kind, 5) for key in book._known)
    assert (len(found.candidates), [rung.every for rung in found.race.rungs]) == (22, every)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        rows = connection.execute("SELECT kind, count(*) FROM score WHERE kind != 'accuracy' GROUP BY kind").fetchall()
    assert dict(rows) == kinds


def test_other_draws_are_other_random_numbers_for_both_scores(bench):
    # The identity flips no coins: what differs is the noise, and the untrained network.
    for kind in (PRIVACY, ACCURACY):
        values = {measure_key(bench, Key(kind, "28", draw, 0)) for draw in range(3)}
        assert len(values) == 3
        assert measure_key(bench, Key(kind, "28", 1, 0)) in values


def test_a_store_is_of_one_search_and_one_process(bench, tmp_path):
    with (
        open_store(tmp_path, {"seed": 0}),
        pytest.raises(UsageError, match="being searched by another process"),
        open_store(tmp_path, {"seed": 0}),
    ):
        pass
    told = r"another search \(seed 0 there, 1 here\)"
    with pytest.raises(UsageError, match=told), open_store(tmp_path, {"seed": 1}):
        pass
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / FILE).write_bytes(b"no database, but long enough to be looked at" * 40)
    with pytest.raises(BadInputError, match="not the scores of a search"), open_store(tmp_path / "other", {}):
        pass


def test_the_identity_of_scores_does_not_depend_on_the_order_of_tensors(bench):
    turned = replace(bench, weights=dict(reversed(list(bench.weights.items()))))
    assert turned.identity() == bench.identity()
    other = {name: value + 1 for name, value in bench.weights.items()}
    assert replace(bench, weights=other).identity() != bench.identity()


def test_a_score_that_is_no_number_is_an_error(bench, tmp_path):
    with (
        opened(bench, tmp_path) as book,
        pytest.raises(UnsuitableError, match="privacy score of policy 3 on picture 0"),
    ):
        book.fill([Key(PRIVACY, "3", 0, 0)], lambda *_: float("nan"))


def test_a_race_and_an_exhaustive_search_agree_on_full_scores(bench, tmp_path):
    settings = SearchSettings(candidates=24, top=4, first=2, threshold=-1e9)
    with opened(bench, tmp_path) as book:
        quick = search(book, settings)
        full = search(book, SearchSettings(candidates=24, top=4, mode="exhaustive", threshold=-1e9))
        everything = book.privacy(full.candidates, 8)
        assert [one.policy for one in full.best] == sorted(everything, key=lambda one: (everything[one], one))[:4]
        scores = {one.policy: one.privacy for one in full.best}
        for one in quick.best:
            assert everything[one.policy] == one.privacy
            values = [measure_key(bench, Key(PRIVACY, str(one.policy), 0, place)) for place in range(8)]
            assert one.error == pytest.approx(float(stats.sem(values)), abs=1e-12)
        assert quick.best[0].policy in scores
        assert quick.race.rungs[0].pictures == 2
        report = describe(quick, settings, bench, noise=noise_floor(book))
    assert [one["policy"] for one in report["best"]] == [str(one.policy) for one in quick.best]
    assert report["candidates"] == {"drawn": 24, "different": len(quick.candidates)}


def test_the_threshold_rejects_and_named_policies_take_part(bench, tmp_path):
    with opened(bench, tmp_path) as book:
        scores = book.accuracy([P("28"), *draw_candidates(24)])
        limit = sorted(scores.values())[len(scores) // 2]
        found = search(book, SearchSettings(candidates=24, top=4, mode="exhaustive", threshold=limit, also=("39",)))
        assert found.candidates[0] == P("28")
        assert all(scores[one.policy] >= limit for one in found.best)
        assert set(found.race.rejected) == {one for one in found.candidates if scores[one] < limit}
        assert found.unchanged == scores[P("28")]


def test_the_noise_floor_is_the_spread_of_equal_policies_scored_apart(bench, tmp_path):
    with opened(bench, tmp_path) as book:
        found = noise_floor(book)
    moved = [[measure_key(bench, Key(PRIVACY, "24", draw, place)) for place in range(8)] for draw in range(1, 5)]
    left = [[measure_key(bench, Key(PRIVACY, "28", draw, place)) for place in range(8)] for draw in range(1, 3)]
    pooled = (3 * torch.tensor(moved).double().var(0).mean() + torch.tensor(left).double().var(0).mean()) / 4
    assert found.privacy == pytest.approx(float((pooled / 8).sqrt()), rel=1e-5)
    assert found.accuracy > 0
    assert {name: len(values) for name, values in found.scored.items()} == {"translate-y": 4, "identity": 2}


def test_pearson_and_its_interval_are_those_of_scipy():
    one, other = uniform((20,), generator(1)).double(), uniform((20,), generator(2)).double()
    other = other + one
    r, low, high = pearson(one.tolist(), other.tolist())
    expected: Any = stats.pearsonr(one.numpy(), other.numpy())
    interval = expected.confidence_interval(0.95)
    assert (r, low, high) == pytest.approx((expected.statistic, interval.low, interval.high), abs=1e-9)
    assert pearson([1, 2, 3, 4], [-1, -2, -3, -4])[0] == pytest.approx(-1)
    assert pearson([1, 1, 1, 1], [1, 2, 3, 4])[1:] == (-1, 1)
    with pytest.raises(UsageError, match="at least 4 pairs"):
        pearson([1, 2, 3], [1, 2, 3])


def test_diversity_counts_functions_and_what_two_policies_share():
    found = diversity([P("3-1"), P("3-43"), P("24")])
    assert found.functions == 3
    # {3, 1}, {3, 24}, {24}: 1/3, 0, 1/2.
    assert found.overlap == pytest.approx((1 / 3 + 0 + 1 / 2) / 3)
    assert in_words(P("3-28+1")) == "translate-x, nothing or contrast"


def test_the_network_of_the_search_learns_the_same_way_every_time():
    model = NetworkSource("mlp", (1, 6, 6), 4).build(0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = Batch(0.2 * uniform((200, 1, 6, 6), generator(1)), torch.arange(200) % 4)
    batch.inputs[torch.arange(200), 0, batch.targets] = 1.0
    losses: list[tuple[int, int, float]] = []
    found = train_tiny(model, batch, TinyTraining(24), watch=lambda *told: losses.append(told))
    assert [told[0] for told in losses] == list(range(1, 49))
    assert losses[0][1] == 48
    assert losses[-1][2] < 0.7 * losses[0][2]
    again = train_tiny(model, batch, TinyTraining(24))
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in found.state_dict().items())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    other = train_tiny(model, batch, TinyTraining(24, seed=1))
    assert any(not torch.equal(value, other.state_dict()[name]) for name, value in found.state_dict().items())
    assert not found.training
    with pytest.raises(UsageError, match="epochs must be a whole number from 0"):
        TinyTraining(-1)


@pytest.mark.parametrize(("width", "threads"), [(300, 1), (1_100, 2)])
@pytest.mark.parametrize("usual", [1, 3])
def test_the_threads_of_a_training_depend_on_the_network_alone(width, threads, usual):
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, width), nn.Linear(width, width), nn.Linear(width, 4))
    batch, seen = Batch(uniform((4, 1, 6, 6), generator(1)), torch.arange(4)), list[int]()
    before = torch.get_num_threads()
    torch.set_num_threads(usual)
    try:
        train_tiny(model, batch, TinyTraining(1), watch=lambda *_: seen.append(torch.get_num_threads()))
        assert (seen, torch.get_num_threads()) == ([threads], usual)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"candidates": 0}, "candidates must be a whole number ≥ 1, got 0"),
        ({"top": 0}, "top must be"),
        ({"first": 0}, "first must be"),
        ({"mode": "rase"}, "Did you mean 'race'"),
        ({"threshold": float("nan")}, "threshold must be a finite number"),
        ({"also": ("50",)}, "no operation 50"),
    ],
)
def test_settings_that_cannot_work_are_refused(given, told):
    with pytest.raises(UsageError, match=told):
        SearchSettings(**given)


def test_without_optuna_the_line_that_installs_it_is_told(bench, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with opened(bench, tmp_path) as book, pytest.raises(MissingExtraError, match=r"pip install .* -e '\.\[search\]'"):
        search(book, SearchSettings(candidates=4, mode="tpe"))


@pytest.mark.parametrize("mode", ["tpe", "nsga2"])
def test_optuna_proposes_the_same_policies_again_and_learns(mode, bench, tmp_path):
    pytest.importorskip("optuna", reason="the extra 'search' is not installed")
    settings = SearchSettings(candidates=24, top=3, mode=mode, threshold=-1e9)
    with opened(bench, tmp_path) as book:
        found = search(book, settings)
    with opened(bench, tmp_path) as book:
        assert search(book, settings) == found
    assert [one.privacy for one in found.best] == sorted(one.privacy for one in found.best)
    if mode == "nsga2":
        assert [first for _, first, _ in found.front] == sorted(first for _, first, _ in found.front)
        assert [second for *_, second in found.front] == sorted(second for *_, second in found.front)


@pytest.mark.parametrize("mode", ["tpe", "nsga2"])
def test_optuna_minimises_what_it_is_told(mode):
    pytest.importorskip("optuna", reason="the extra 'search' is not installed")

    def evaluate(policies: Sequence[Policy]) -> list[list[float]]:
        shares = [sum(index != 3 for index in one.parts[0]) / 3 for one in policies]
        return [[share] if mode == "tpe" else [share, share] for share in shares]

    found = optuna_search.propose(mode, 160, evaluate=evaluate, seed=0)
    early, late = found[:20], found[-20:]
    assert sum(3 in one.parts[0] for one in late) > sum(3 in one.parts[0] for one in early) + 3
