"""Results are found by tags, paired by what they share, and judged by their interval."""

from __future__ import annotations

import pytest

from leakscope.errors import UsageError
from leakscope.reproduction import above, call_cell, correlates, every, judge_estimate, reaches, succeeds
from leakscope.reproduction.results import CellResult, Results
from leakscope.reproduction.statistics import Estimate
from leakscope.runner import CellOutcome
from leakscope.types import Status


def result(psnr, *, status=Status.OK, expected=None, guessed=None, **tags) -> CellResult:
    cell = call_cell(tags, "reproductions.nowhere:function", expected=expected)
    values = {"psnr": psnr} | ({} if guessed is None else {"baseline_psnr": guessed})
    return CellResult(cell, CellOutcome(status, {"values": values}))


def two_attacks(ours, others, **options) -> Results:
    rows = [result(value, attack="ours", victim=place, **options) for place, value in enumerate(ours)]
    guess = {"guessed": options.get("guessed")}
    rows += [result(value, attack="others", victim=place, **guess) for place, value in enumerate(others)]
    return Results(tuple(rows))


OURS, OTHERS = {"attack": "ours"}, {"attack": "others"}
JUDGE = above("psnr", OURS, OTHERS)


def test_pairs_are_of_the_same_victim_whatever_the_order():
    results = two_attacks([10.0, 20.0, 30.0], [1.0, 2.0, 3.0])
    turned = Results(results.cells[:3] + results.cells[:2:-1])
    assert turned.pairs("psnr", OURS, OTHERS) == ([10.0, 20.0, 30.0], [1.0, 2.0, 3.0])


def test_a_claim_holds_by_its_whole_interval():
    assert JUDGE(two_attacks([11.0, 21.1, 30.9], [10.0, 20.0, 30.0])).outcome == "holds"
    weak = JUDGE(two_attacks([18.0, 19.9, 30.9], [10.0, 20.0, 30.0]))
    assert weak.outcome == "holds weakly"
    assert weak.interval[0] < 0 < weak.effect
    wrong = JUDGE(two_attacks([9.0, 18.9, 29.1], [10.0, 20.0, 30.0]))
    assert wrong.outcome == "does not hold"
    assert "other side" in wrong.note
    assert wrong.n == 3
    # No difference at all is not above.
    assert JUDGE(two_attacks([1.0, 2.0], [1.0, 2.0])).outcome == "does not hold"


def test_what_did_not_end_well_is_no_evidence_unless_asked_for():
    results = two_attacks([11.0, 21.0, 31.0], [10.0, 20.1, 30.0], status=Status.DIVERGED)
    assert JUDGE(results).outcome == "not testable"
    assert above("psnr", OURS, OTHERS, ended="any")(results).outcome == "holds"


def test_two_failures_are_not_compared():
    below = JUDGE(two_attacks([11.0, 9.1, 10.9], [8.0, 8.0, 8.0], guessed=12.0))
    assert below.outcome == "not testable"
    assert "10.33 against 8 dB, both below the 12 dB reached without the update" in below.note
    assert below.n == 3
    # One side is enough: an attack that works beside one that does not, or a defence that takes what was there.
    assert JUDGE(two_attacks([13.0, 13.1, 12.9], [8.0, 8.0, 8.0], guessed=12.0)).outcome == "holds"
    assert JUDGE(two_attacks([8.0, 8.0, 8.0], [13.0, 13.1, 12.9], guessed=12.0)).outcome == "does not hold"


def test_one_victim_is_one_unit_however_many_examples_it_has():
    results = Results((result([[1.0, 3.0], [5.0, 7.0]], attack="ours"),))
    assert results.units("psnr") == [2.0, 6.0]
    assert results.cells[0].examples("psnr") == [1.0, 3.0, 5.0, 7.0]


def test_missing_values_are_left_out_and_other_numbers_of_units_refused():
    assert Results((result([1.0, None]),)).units("psnr") == [1.0]
    with pytest.raises(UsageError, match="2 and 1 units"):
        JUDGE(two_attacks([[1.0, 2.0]], [[1.0]]))


def test_an_expected_ending_is_explained_and_others_are_not():
    told = {"unfinished": "equal steps"}
    assert result(1.0, status=Status.UNFINISHED, expected=told).is_explained
    assert result(1.0, status=Status.UNFINISHED, expected=told).reason == "equal steps"
    assert not result(1.0, status=Status.ERROR, expected=told).is_explained
    assert not CellResult(call_cell({}, "a:b"), None).is_explained


def test_other_questions():
    results = two_attacks([31.0, 32.0, 33.0, 10.0], [1.0, 2.0, 3.0, 4.0])
    assert reaches("psnr", 2.0, **OTHERS)(results).outcome == "holds weakly"
    assert reaches("psnr", 3.0, **OTHERS)(results).outcome == "does not hold"
    assert succeeds("psnr", 30.0, share=0.2, **OURS)(results).effect == 0.75
    assert correlates(lambda _: [1, 2, 3, 4, 5], lambda _: [1, 2, 3, 4, 6])(results).outcome == "holds"
    assert correlates(lambda _: [1, 2, 3], lambda _: [1, 2, 3])(results).outcome == "not testable"


def test_the_weakest_of_several():
    results = two_attacks([11.0, 21.1, 30.9], [10.0, 20.0, 30.0])
    found = every(JUDGE, above("psnr", OTHERS, OURS))(results)
    assert found.outcome == "does not hold"
    assert "number 2" in found.note
    assert judge_estimate(Estimate(1.0, None, 1)).outcome == "not testable"
