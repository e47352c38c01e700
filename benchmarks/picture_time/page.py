"""The kept results as Markdown tables and as drawings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from picture_time.curves import middle_level

Result = Mapping[str, Any]

NOTES = """\
Medians over victims; one thread, processor time, contestants in turns on each victim. In brackets how many victims came
to the mark; one that never did counts as infinite, so "never" means half of them or more. The plateau is each victim's
own: the plain loop's best within 120 evaluations, less 0.3 dB; where that is not 1 dB above a grey picture there is
none, and the victim counts as never for everyone. Lists are the victims' dB, in the same order everywhere; "–" is
nothing in hand yet."""


def render(results: Sequence[Result]) -> str:
    """All cases, each a heading, two tables and what was measured on."""
    return "\n\n".join(["\n".join(render_case(result)) for result in results] + [NOTES]) + "\n"


def render_case(result: Result) -> Iterator[str]:
    """One case."""
    budgets = [f"{budget:g}" for budget in result["budgets"]]
    yield f"### {result['case']}\n"
    where = f"{result['machine']}, {result['measured']}"
    yield f"Victims: {len(result['victims'])}. {where}; a run waited up to {result['waited']:g}× its processor time."
    if result["grey"]:
        grey, plateaus = (" ".join(map(_level, result[key])) for key in ("grey", "plateau"))
        yield f"A grey picture has {grey} dB, the plateaus are at {plateaus} dB."
    yield ""
    marks = list(next(iter(result["contestants"].values()))["seconds"])
    named = [name if name == "plateau" else f"{name} dB" for name in marks]
    yield _row(["", "ms/evaluation", "peak MB", *(f"dB at {b} s" for b in budgets), *(f"s to {n}" for n in named)])
    yield _row(["---"] * (3 + len(budgets) + len(marks)))
    for name, one in result["contestants"].items():
        levels = [_level(middle_level(one["dB"][budget])) for budget in budgets]
        times = [describe_times(one["seconds"][mark]["victims"]) for mark in marks]
        yield _row([name, _number(median(one["ms per evaluation"])), _number(median(one["peak MB"])), *levels, *times])
    yield ""
    yield _row(["victims' dB", *(f"at {budget} s" for budget in budgets), "settings"])
    yield _row(["---"] * (2 + len(budgets)))
    for name, one in result["contestants"].items():
        lists = [" ".join(map(_level, one["dB"][budget])) for budget in budgets]
        yield _row([name, *lists, ", ".join(f"{key} {value}" for key, value in one["settings"].items())])


def describe_times(seconds: Sequence[float | None]) -> str:
    """The median, and how many there are: `6.2 (5/6)`."""
    reached = [value for value in seconds if value is not None]
    middle = median([math.inf if value is None else value for value in seconds])
    return f"{_number(middle)} ({len(reached)}/{len(seconds)})"


def draw(result: Result) -> str:
    """Median dB over processor seconds, a line per contestant; the seconds are the budgets, on a logarithmic axis."""
    # Here, because drawing is leakscope's own and brings torch: workers must not be started by a large process.
    from leakscope.report.svg import LEFT, RIGHT, WIDTH, Axis, draw_file, frame, join, polyline, y_axis

    lines = {name: curve(one["dB"]) for name, one in result["contestants"].items()}
    levels = [level for points in lines.values() for _, level in points] or [0.0]
    budgets = result["budgets"]
    x = Axis(min(budgets), max(budgets), LEFT, WIDTH - RIGHT, "processor seconds (log)", log=True)
    y = y_axis(math.floor(min(levels)), math.ceil(max(levels)), label="median PSNR (dB)")
    drawn = [polyline(points, x, y, series=place) for place, points in enumerate(lines.values())]
    story = "; ".join(
        f"{name}: " + ", ".join(f"{level:.1f} dB at {seconds:g} s" for seconds, level in points)
        for name, points in lines.items()
    )
    title = f"Time to the picture: {result['case']}"
    return draw_file(frame(x, y) + join(drawn), title=title, description=story, legend=list(lines)) + "\n"


def curve(levels: Mapping[str, Sequence[float | None]]) -> list[tuple[float, float]]:
    """Median dB at every budget where most victims have a picture."""
    medians = ((float(budget), middle_level(own)) for budget, own in levels.items())
    return [(seconds, level) for seconds, level in medians if level is not None]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _level(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "never"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
