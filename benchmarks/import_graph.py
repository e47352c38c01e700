"""The imports between the parts of the package as a page of documentation: a drawing and a table.

The page depends on nothing but the imports, so that drawing it again gives the same text until an import changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import TopologicalSorter

Graph = Mapping[str, frozenset[str]]

_HEAD = """# Import graph

<!-- Written by `make house`; a test fails when it no longer matches the code. -->

Who imports whom inside `leakscope`. Imports point down only; `make check` enforces the order. The drawing leaves out an
arrow wherever a longer way through other arrows says the same; the table has them all. Imports for type checkers alone
are not counted.
"""
_ROW, _HEIGHT, _GAP, _LETTER = 64, 26, 18, 7.2


def page(graph: Graph) -> str:
    """The page in Markdown.

    Raises:
        graphlib.CycleError: Parts import each other in a circle.
    """
    order = list(TopologicalSorter(graph).static_order())
    table = ["| part | imports |", "|---|---|"]
    for part in sorted(graph):
        listed = ", ".join(f"`{each}`" for each in sorted(graph[part]))
        table.append(f"| `{part}` | {listed or '–'} |")
    return "\n".join([_HEAD, *_drawing(graph, order), "", *table, ""])


def reduce(graph: Graph, order: list[str]) -> dict[str, list[str]]:
    """The arrows that no longer way replaces; `order` lists what is imported before what imports it."""
    below: dict[str, set[str]] = {}
    for part in order:
        below[part] = set(graph[part]).union(*(below[each] for each in graph[part]))
    return {
        part: sorted(each for each in graph[part] if not any(each in below[other] for other in graph[part]))
        for part in order
    }


def _drawing(graph: Graph, order: list[str]) -> list[str]:
    """An SVG without blank lines, which Markdown takes as it is; one row for each length of the way down."""
    arrows, row = reduce(graph, order), {}
    for part in order:
        row[part] = 1 + max((row[each] for each in graph[part]), default=-1)
    rows = [[part for part in order if row[part] == index] for index in range(max(row.values(), default=-1) + 1)]
    width = max((_extent(parts) for parts in rows), default=0) + 2 * _GAP
    middle = _places(rows, arrows, width)
    height = len(rows) * _ROW
    svg = [
        f'<svg viewBox="0 0 {width:.0f} {height}" role="img" aria-label="Import graph" font-family="monospace" '
        'font-size="12" text-anchor="middle">'
    ]
    top = {part: height - (row[part] + 1) * _ROW + (_ROW - _HEIGHT) / 2 for part in order}
    for part in sorted(arrows):
        svg += [
            f'<path d="M{middle[part]:.0f} {top[part] + _HEIGHT:.0f}L{middle[each]:.0f} {top[each]:.0f}" '
            'stroke="currentColor" stroke-opacity="0.45"/>'
            for each in arrows[part]
        ]
    for part in sorted(order):
        wide = _width(part)
        svg += [
            f'<rect x="{middle[part] - wide / 2:.0f}" y="{top[part]:.0f}" width="{wide:.0f}" height="{_HEIGHT}" rx="4" '
            'stroke="currentColor" style="fill: var(--md-default-bg-color, white)"/>',
            f'<text x="{middle[part]:.0f}" y="{top[part] + 17:.0f}" fill="currentColor">{part}</text>',
        ]
    return [*svg, "</svg>"]


def _places(rows: list[list[str]], arrows: Mapping[str, list[str]], width: float) -> dict[str, float]:
    """Where each part stands in its row, left to right by what it imports, the row spread over the whole width."""
    middle: dict[str, float] = {}
    for parts in rows:
        wished = {part: _mean([middle[each] for each in arrows[part]], width / 2) for part in parts}
        space = (width - sum(_width(part) for part in parts)) / (len(parts) + 1)
        left = space
        for part in sorted(parts, key=lambda part: (wished[part], part)):
            middle[part] = left + _width(part) / 2
            left += _width(part) + space
    return middle


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _width(part: str) -> float:
    return _LETTER * len(part) + 16


def _extent(parts: list[str]) -> float:
    return sum(_width(part) + _GAP for part in parts)
