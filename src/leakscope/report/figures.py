"""Two figures: convergence of the attacks, and share of images above x dB."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leakscope.report.evidence import NO_DEFENCE, Example, examples_of, is_evidence
from leakscope.report.grades import RECOGNISABLE
from leakscope.report.nouns import noun_of
from leakscope.report.schema import CellRecord, Number
from leakscope.report.svg import (
    Point,
    chart,
    frame,
    join,
    polyline,
    rule,
    series_class,
    x_axis,
    y_axis,
)
from leakscope.report.words import decibel

_MOST_POINTS = 120
_MOST_LINES = 12
_MOST_CHARTS = 12


@dataclass(frozen=True)
class Figure:
    """A drawing, what the legend says: (CSS classes, name) per line, and what it comes to in words."""

    title: str
    svg: Markup
    legend: tuple[tuple[str, str], ...]
    left_out: int = 0
    note: str = ""


def convergence(cells: Sequence[CellRecord]) -> list[Figure]:
    """One chart per attack: matching loss along the run, log scale, one line per defence."""
    attacks = list(dict.fromkeys(cell.attack for cell in cells if _positive(cell.history)))
    return [
        _converging(attack, [cell for cell in cells if cell.attack == attack], name=f"conv{index}")
        for index, attack in enumerate(attacks[:_MOST_CHARTS])
    ]


def _converging(attack: str, cells: Sequence[CellRecord], *, name: str) -> Figure:
    curves: dict[str, list[Point]] = {}
    for cell in cells:
        points = _positive(cell.history)
        # Seeds look alike; the first that has a curve stands for them.
        if points:
            curves.setdefault(_line_name(cell), points)
    shown = dict(list(curves.items())[:_MOST_LINES])
    values = [value for points in shown.values() for _, value in points]
    low, high = min(values), max(values)
    if high / low < 10:
        low, high = low / 2, high * 2
    last = max(points[-1][0] for points in shown.values())
    x = x_axis(0, max(last, 1), label="recorded step")
    y = y_axis(low, high, label="matching loss (log)", log=True, form=_scientific)
    lines = [polyline(points, x, y, series=index) for index, points in enumerate(shown.values())]
    story = "; ".join(f"{key}: from {points[0][1]:.2g} to {points[-1][1]:.2g}" for key, points in shown.items())
    svg = chart(
        frame(x, y) + join(lines),
        title=f"Convergence of {attack}",
        description=f"Matching loss on a logarithmic scale. {story}.",
        name=name,
    )
    return Figure(attack, svg, _legend(list(shown)), len(curves) - len(shown))


def success(cells: Sequence[CellRecord], threshold: float) -> Figure | None:
    """Share of images rebuilt better than x dB, per defence, the strongest attack on each image."""
    strongest, noun = _strongest(cells), noun_of(cells)
    if not strongest:
        return None
    shown = dict(list(strongest.items())[:_MOST_LINES])
    values = [cap(value) for row in shown.values() for value in row]
    low = 5 * math.floor(min([*values, threshold]) / 5)
    high = max(5 * math.ceil(max([*values, threshold]) / 5), low + 10)
    x = x_axis(low, high, label="PSNR reached (dB)")
    y = y_axis(0, 1, label=f"share of {noun}s", form="{:.0%}".format)
    lines = [polyline(_survival(row, low, high), x, y, series=index) for index, row in enumerate(shown.values())]
    marks = rule(threshold, x, label=f"threshold {threshold:g} dB")
    story = "; ".join(
        f"{name}: {sum(value > threshold for value in row)} of {len(row)} {noun}s above {threshold:g} dB, "
        f"highest {decibel(max(row))}"
        for name, row in shown.items()
    )
    svg = chart(
        frame(x, y) + marks + join(lines),
        title=f"Share of {noun}s rebuilt better than x dB, per defence",
        description=f"For each {noun} the strongest attack counts. {story}.",
        name="success",
    )
    return Figure(f"Share of {noun}s above x dB", svg, _legend(list(shown)), len(strongest) - len(shown))


def _strongest(cells: Sequence[CellRecord]) -> dict[str, list[float]]:
    """Per defence, the highest PSNR any attack reached on each image."""
    best: dict[str, dict[tuple[object, ...], float]] = {}
    for cell in cells:
        for example in examples_of(cell):
            # A failed attack shows no protection; what it rebuilt all the same is shown.
            if not is_evidence(cell) and example.level < RECOGNISABLE:
                continue
            row = best.setdefault(cell.defence, {})
            who = _identity(example)
            row[who] = max(row.get(who, -math.inf), example.psnr)
    return {name: sorted(row.values()) for name, row in best.items()}


def _identity(example: Example) -> tuple[object, ...]:
    cell = example.cell
    return cell.model, cell.data, cell.scenario, cell.batch_size, cell.seed, str(cell.local), example.index


def _survival(values: Sequence[float], low: float, high: float) -> list[Point]:
    """Step function: share of `values` above x, from `low` to `high`."""
    count, points = len(values), [(low, 1.0)]
    for index, value in enumerate(sorted(cap(value) for value in values)):
        points += [(value, 1 - index / count), (value, 1 - (index + 1) / count)]
    points.append((high, 0.0))
    stride = max(1, len(points) // (4 * _MOST_POINTS))
    return [*points[::stride], points[-1]]


def _positive(history: Sequence[Number]) -> list[Point]:
    points = [
        (float(step), value)
        for step, value in enumerate(history)
        if value is not None and math.isfinite(value) and value > 0
    ]
    if len(points) < 2:
        return []
    stride = max(1, math.ceil(len(points) / _MOST_POINTS))
    return [*points[:-1:stride], points[-1]]


def cap(value: float) -> float:
    """A PSNR as charts draw it."""
    # A perfect copy has infinite PSNR; 100 dB is off every chart's interesting part.
    return min(100.0, max(-20.0, value))


def _line_name(cell: CellRecord) -> str:
    if cell.defence == NO_DEFENCE:
        return "no defence"
    return f"{cell.defence} · attacker knows it" if cell.adaptive else cell.defence


def _legend(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (series_class(index), "no defence" if name == NO_DEFENCE else name) for index, name in enumerate(names)
    )


def _scientific(value: float) -> str:
    power = math.floor(math.log10(value) + 1e-9)
    if -3 < power < 4:
        return f"{value:g}"
    lead = "" if round(value / 10.0**power) == 1 else f"{value / 10.0**power:.0f}·"
    return f"{lead}10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
