"""Accuracy against leakage, one chart per network and data set, with the front of what no other defence beats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from leakscope.report.evidence import NO_DEFENCE
from leakscope.report.figures import Figure, cap
from leakscope.report.grades import mark
from leakscope.report.nouns import noun_of
from leakscope.report.pareto import DefencePlace, Standing, front, places
from leakscope.report.schema import CellRecord, DefenceCost
from leakscope.report.svg import Axis, chart, frame, join, level, path, place_names, tag, x_axis, y_axis
from leakscope.report.words import decibel

_MOST_CHARTS = 8
_MOST_DOTS = 16
_NOT_DRAWN_ON_THE_FRONT: tuple[Standing, ...] = ("dominated", "at chance", "inconclusive")
_MEANING = {
    "dominated": "beaten by another",
    "at chance": "accuracy at chance",
    "inconclusive": "inconclusive, leaks at least so much",
}


def tradeoffs(cells: Sequence[CellRecord], costs: Sequence[DefenceCost], threshold: float) -> list[Figure]:
    """The charts of all networks and data sets in which two or more defences, or none and one, have both figures."""
    found = []
    for model, data in dict.fromkeys((cell.model, cell.data) for cell in cells):
        mine = [cell for cell in cells if (cell.model, cell.data) == (model, data)]
        paid = [cost for cost in costs if (cost.model, cost.data) == (model, data)]
        dots = places(mine, paid)
        if len(dots) > 1:
            found.append(
                _draw(dots, title=f"{model} on {data}", noun=noun_of(mine), threshold=threshold, at=len(found))
            )
    return found[:_MOST_CHARTS]


def _draw(dots: Sequence[DefencePlace], *, title: str, noun: str, threshold: float, at: int) -> Figure:
    shown = [*front(dots), *(dot for dot in dots if dot.standing != "front")][:_MOST_DOTS]
    x, y = _axes(shown, noun=noun, threshold=threshold)
    spots = [(x(100 * dot.accuracy), y(cap(dot.leakage))) for dot in shown]
    names = place_names([(*spot, _short(dot.name)) for spot, dot in zip(spots, shown, strict=True)])
    bars = [_whisker(dot, x, y) for dot in shown]
    marks = [_dot(dot, *spot) for dot, spot in zip(shown, spots, strict=True)]
    body = frame(x, y) + level(threshold, y, label=f"gate {threshold:g} dB") + _front_line(shown, x, y)
    svg = chart(
        body + join(bars) + join(marks) + names,
        title=f"Accuracy against leakage, {title}",
        description=f"Lower right is better: accurate, and little leaks. {_tell(shown, noun=noun)}",
        name=f"tradeoff{at}",
    )
    return Figure(title, svg, (), len(dots) - len(shown), note=_note(shown))


def _axes(shown: Sequence[DefencePlace], *, noun: str, threshold: float) -> tuple[Axis, Axis]:
    left, right = (100 * edge(dot.interval[side] for dot in shown) for side, edge in ((0, min), (1, max)))
    room = max(0.12 * (right - left), 1.0)
    leaks = [threshold, *(cap(dot.leakage) for dot in shown)]
    x = x_axis(max(0.0, left - room), min(100.0, right + room), label="accuracy (%)")
    low, high = 5 * math.floor(min(leaks) / 5 - 0.2), 5 * math.ceil(max(leaks) / 5 + 0.2)
    return x, y_axis(low, high, label=f"highest PSNR of any {noun} (dB)")


def _front_line(shown: Sequence[DefencePlace], x: Axis, y: Axis) -> Markup:
    """Stairs: left of and above them something on the front is at least as good."""
    corners: list[tuple[float, float]] = []
    for place in front(shown):
        if corners:
            corners.append((100 * place.accuracy, corners[-1][1]))
        corners.append((100 * place.accuracy, cap(place.leakage)))
    return path(corners, x, y, style="front") if len(corners) > 1 else Markup("")


def _whisker(dot: DefencePlace, x: Axis, y: Axis) -> Markup:
    down = f"{y(cap(dot.leakage)):.1f}"
    ends = {"x1": f"{x(100 * dot.interval[0]):.1f}", "x2": f"{x(100 * dot.interval[1]):.1f}"}
    return tag("line", **ends, y1=down, y2=down, class_="whisker")


def _dot(dot: DefencePlace, across: float, down: float) -> Markup:
    best = dot.standing == "front"
    style, letter = (f"dot {mark(dot.grade)}", "dot-letter") if best else ("dot faded", "dot-letter faded")
    circle = tag("circle", r=11, cx=f"{across:.1f}", cy=f"{down:.1f}", class_=style)
    return circle + tag("text", dot.grade, x=f"{across:.1f}", y=f"{down:.1f}", dy="0.35em", class_=letter)


def _tell(shown: Sequence[DefencePlace], *, noun: str) -> str:
    told = []
    for dot in shown:
        low, high = (100 * value for value in dot.interval)
        place = "on the front" if dot.standing == "front" else _MEANING[dot.standing]
        told.append(
            f"{_name(dot.name)}: accuracy {100 * dot.accuracy:.1f} % ({low:.1f} to {high:.1f}), highest {noun} "
            f"{decibel(dot.leakage)}, grade {dot.grade}, {place}"
        )
    return "; ".join(told) + "."


def _note(shown: Sequence[DefencePlace]) -> str:
    best = ", ".join(_name(dot.name) for dot in front(shown)) or "none"
    rest = [
        f"{_MEANING[standing]}: {', '.join(_name(dot.name) for dot in shown if dot.standing == standing)}"
        for standing in _NOT_DRAWN_ON_THE_FRONT
        if any(dot.standing == standing for dot in shown)
    ]
    return "; ".join([f"On the front: {best}", *rest]) + "."


def _name(name: str) -> str:
    return "no defence" if name == NO_DEFENCE else name


def _short(name: str) -> str:
    text = _name(name)
    return text if len(text) <= 26 else text[:25] + "…"
