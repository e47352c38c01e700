from __future__ import annotations

import pytest

from leakscope.audits import parse_config
from leakscope.audits.durations import duration, parse_duration
from leakscope.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), (90, 90), ("2m", 120), (" 1H30M ", 5400), ("1h", 3600), ("1.5h", 5400), ("1m5s", 65)],
)
def test_lengths_of_time_are_read(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_config({"budget": text}).budget == seconds


@pytest.mark.parametrize("text", ["", "0", "soon", "2 weeks", "-3", "30m1h", "m", "nan", "1e400", None, True, 0, -5.0])
def test_what_is_none_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(UsageError, match="1h30m"):
        parse_duration(text)


def test_a_wrong_budget_in_a_file_names_the_setting() -> None:
    with pytest.raises(UsageError, match=r"budget: .*1h30m"):
        parse_config({"budget": "soon"})


def test_lengths_of_time_are_printed_as_people_say_them() -> None:
    found = [duration(value) for value in (0.0123, 1, 42.4, 60, 150, 3600, 5400, 360_000)]
    assert found == ["0.012 s", "1 s", "42 s", "1 min", "2 min 30 s", "1 h", "1 h 30 min", "100 h"]
