from __future__ import annotations

import math

import pytest


def test_a_run_has_in_hand_its_last_iterate_until_it_returns(curves, make_run):
    run = make_run([10, 12, 11], returned=14)
    assert curves.level_at(run, 0.99) is None
    assert [curves.level_at(run, at) for at in (1.0, 1.99, 2.0, 2.99, 3.0, 100)] == [10, 10, 12, 12, 14, 14]


def test_the_first_snapshot_at_a_mark_counts_although_later_ones_are_worse(curves, make_run):
    run = make_run([10, 17, 15, 18], pace=2.0, setup=1.0)
    assert [curves.seconds_to(run, mark) for mark in (10, 16, 17, 17.5)] == [3.0, 5.0, 5.0, 9.0]
    assert curves.seconds_to(run, 18.1) == math.inf


def test_a_returned_picture_that_no_snapshot_shows_counts_as_the_whole_run(curves, make_run):
    assert curves.seconds_to(make_run([10, 11, 12], returned=20), 19) == 3.0


def test_a_broken_picture_reaches_nothing(curves, make_run):
    assert curves.seconds_to(make_run([math.nan, math.nan]), -100) == math.inf


def test_pace_leaves_set_up_out_of_evaluations_and_puts_it_into_runs(curves, make_run):
    runs = [make_run([1.0] * 5, pace=p, setup=s) for p, s in ((0.2, 3.0), (0.4, 1.0), (9.0, 2.0))]
    assert [run.ms_per_evaluation for run in runs] == pytest.approx([200, 400, 9000])
    pace = curves.pace_of(runs)
    assert (pace.setup, pace.evaluation) == pytest.approx((2.0, 0.4))
    assert pace.expects(10) == pytest.approx(6.0)
    assert [pace.fits(seconds) for seconds in (1.0, 2.3, 2.5, 6.3)] == [0, 0, 1, 10]


def test_the_end_of_a_run_that_no_snapshot_saw_is_not_set_up(curves, worker_result):
    # Snapshots of every second evaluation, the last of them at 4 of 5.
    written = worker_result([1.0] * 5, pace=1.0, setup=3.0)
    written["trajectory"] = [written["trajectory"][0], *written["trajectory"][1:4:2]]
    assert curves.read_run(written, 5).setup == pytest.approx(3.0)


def test_the_longest_run_expected_to_fit_is_chosen_beforehand(curves):
    pace = curves.Pace(setup=1.0, evaluation=0.5)
    chosen = [curves.choose_length([20, 10, 40], pace, seconds) for seconds in (1, 6, 10.9, 11, 20.9, 1000)]
    assert chosen == [10, 10, 10, 20, 20, 40]


def test_a_victim_that_never_arrives_is_infinite_and_not_dropped(curves, make_run):
    runs = {3: [make_run([10, 17, 18]), make_run([17, 17, 17]), make_run([1, 2, 3])]}
    found = curves.reach(runs, [17, 17, 17])
    assert found.seconds == (2.0, 1.0, math.inf)
    assert (found.median, found.reached) == (2.0, 2)
    assert curves.reach({3: runs[3][1:]}, [17, 17]).median == math.inf
    assert curves.reach({3: runs[3][2:]}, [17]) == curves.Reach(3, (math.inf,))


def test_every_victim_has_a_mark_of_its_own(curves, make_run):
    runs = {2: [make_run([10, 20]), make_run([10, 20])]}
    assert curves.reach(runs, [20, 5]).seconds == (2.0, 1.0)


def test_one_length_serves_all_victims_and_the_lowest_median_wins(curves, make_run):
    # Victim by victim the shorter run would win once and the longer once: that choice is not offered.
    short = [make_run([17, 17]), make_run([1, 2])]
    long = [make_run([1, 2, 17]), make_run([1, 17, 17])]
    assert curves.reach({2: short, 3: long}, [17, 17]) == curves.Reach(3, (3.0, 2.0))


def test_among_equal_medians_more_arrivals_count_and_then_the_shorter_run(curves, make_run):
    never, once = make_run([1, 2]), make_run([17, 17])
    assert curves.reach({2: [never] * 3, 3: [once, never, never]}, [17] * 3).length == 3
    assert curves.reach({3: [never], 2: [never]}, [17]).length == 2


def test_the_plateau_is_the_best_within_its_evaluations_less_a_little(curves, make_run):
    levels = [10.0] * 120
    levels[60] = 21.0
    assert curves.plateau(make_run(levels)) == pytest.approx(20.7)
    assert curves.plateau(make_run([10.0] * 120, returned=12.0)) == pytest.approx(11.7)
    assert curves.plateau(make_run([math.nan, *levels[1:]])) == pytest.approx(20.7)
    with pytest.raises(ValueError, match="120 evaluations, got 3"):
        curves.plateau(make_run([1, 2, 3]))


def test_a_plateau_near_a_grey_picture_is_none_and_nobody_reaches_it(curves, make_run):
    levels = [14.0] * 120
    assert curves.plateau(make_run(levels, grey=12.6)) == pytest.approx(13.7)
    none = curves.plateau(make_run(levels, grey=12.8))
    assert math.isnan(none)
    assert curves.seconds_to(make_run([50.0, 60.0]), none) == math.inf


def test_nothing_in_hand_counts_as_lower_than_any_picture(curves):
    assert curves.middle_level([None, 15.0, 18.0]) == 15.0
    assert curves.middle_level([math.nan, 15.0, 18.0]) == 15.0
    assert curves.middle_level([None, None, 18.0]) is None
