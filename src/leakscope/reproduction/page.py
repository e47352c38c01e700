"""A reproduction as one inert page: the paper's numbers, ours, verdicts, figures, pictures side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from leakscope.report.figures import Figure
from leakscope.report.gallery import data_uri, to_pixels
from leakscope.report.render import fill_page
from leakscope.report.svg import series_class
from leakscope.reproduction.recipe import OUTCOMES
from leakscope.reproduction.results import CellResult
from leakscope.reproduction.run import Reproduced
from leakscope.reproduction.stored import describe, draw
from leakscope.text import printable
from leakscope.version import __version__

_MOST_PAIRS = 48
_MOST_CELLS = 500
# Colours of grades: green, yellow, red, grey; the word stands in the chip as well.
_MARKS = dict(zip(OUTCOMES, ("g-a", "g-c", "g-e", "g-unknown"), strict=True))


@dataclass(frozen=True)
class PicturePair:
    """An original and what was rebuilt of it, as data URIs."""

    caption: str
    truth: str
    found: str


def render_page(found: Reproduced) -> str:
    """Return the page."""
    told = describe(found)
    pairs = list(_pairs(found))
    context: dict[str, Any] = {
        "version": __version__,
        "recipe": found.recipe,
        "told": told,
        "marks": _MARKS,
        "settings": {name: _show(value) for name, value in told["settings"].items()},
        "figures": [
            Figure(
                printable(one.title),
                one.on_page(),
                tuple((series_class(place), printable(name)) for place, name in enumerate(one.legend) if name),
            )
            for one in draw(found)
        ],
        "pairs": pairs[:_MOST_PAIRS],
        "more_pairs": max(0, len(pairs) - _MOST_PAIRS),
        "cells": [_line(one) for one in found.results.cells[:_MOST_CELLS]],
        "more_cells": max(0, len(found.results) - _MOST_CELLS),
    }
    return fill_page("reproduction.html.j2", context)


def _show(value: object) -> str:
    return printable(", ".join(map(str, value)) if isinstance(value, list) else value, most=1_000)


def _line(one: CellResult) -> dict[str, Any]:
    psnr = one.examples("psnr")
    return {
        "name": printable(one.cell.name),
        "status": one.status,
        "reason": printable(one.reason, most=400),
        "victims": " ".join(str(batch) for batch in one.cell.victims) or "–",
        "seed": _seed(one),
        "psnr": sum(psnr) / len(psnr) if psnr else None,
        "seconds": one.seconds,
    }


def _seed(one: CellResult) -> object:
    how: Any = one.cell.spec.get("training") or one.cell.spec.get("settings") or {}
    return one.cell.spec.get("seed", how.get("seed", "–"))


def _pairs(found: Reproduced) -> Iterator[PicturePair]:
    for one in found.results:
        if {"truth", "reconstruction"} <= set(one.pictures):
            psnr = one.examples("psnr")
            both = zip(one.pictures["truth"], one.pictures["reconstruction"], strict=True)
            for place, (truth, rebuilt) in enumerate(both):
                reached = f", {psnr[place]:.1f} dB" if place < len(psnr) else ""
                yield PicturePair(printable(f"{one.cell.name}{reached}"), _uri(truth), _uri(rebuilt))


def _uri(picture: Tensor) -> str:
    return data_uri(to_pixels(picture))
