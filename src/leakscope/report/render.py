"""A run's summary and images in, one self-contained and inert HTML page out."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from leakscope.errors import BadInputError
from leakscope.files import write_atomic
from leakscope.regular_files import read_file
from leakscope.report.costs import chance_words
from leakscope.report.gallery import CellImages, Gallery, Images, build_gallery
from leakscope.report.grades import mark
from leakscope.report.guarantees import guarantee_words
from leakscope.report.nouns import reword
from leakscope.report.schema import Summary, parse_summary
from leakscope.report.spreadsheet import to_csv
from leakscope.report.statuses import status_mark, status_meaning
from leakscope.report.view import all_examples, data_block, page_context
from leakscope.report.words import decibel, plural, remarks

MAX_BYTES = 5_000_000
SPREADSHEET = "results.csv"
_LARGEST_SUMMARY = 500_000_000
_MOST_DATA = 1_000_000
# Room for the banner and headings that only the final page has.
_RESERVE = 20_000
_FOLDER = Path(__file__).parent / "templates"


def write_report(directory: str | Path, *, show_images: bool = False) -> Path:
    """Render `directory`/summary.json as `directory`/report.html and return its path; results.csv goes beside it.

    The page replaces an older one in a single step: a reader never sees half of it.

    Args:
        directory: a run's directory.
        show_images: also read `cells/<key>.safetensors` and show the private images.

    Raises:
        BadInputError: when the summary or an image file is missing or does not fit.
        StorageError: when the page cannot be written.
    """
    folder = Path(directory)
    summary = read_summary(folder / "summary.json")
    page = render(summary, CellImages(folder / "cells") if show_images else None, show_images=show_images)
    write_atomic(folder / SPREADSHEET, to_csv(summary).encode("utf-8", "replace"))
    return write_atomic(folder / "report.html", page.encode("utf-8"))


def render(summary: Summary, images: Images | None, *, show_images: bool) -> str:
    """Return the report as one HTML page of at most 5 MB.

    Args:
        summary: what the run came to.
        images: per cell key the pair (truth, reconstruction), each [n, C, H, W] in [0, 1] and
            in the order of the cell's scores.
        show_images: whether private pixels may appear. Without it the page holds none.
    """
    context = page_context(summary)
    context["data"] = _data(summary)
    if not show_images:
        return _fill(context, gallery=None)
    bare = _fill(context, gallery=Gallery())
    budget = MAX_BYTES - _RESERVE - len(bare.encode())
    return _fill(context, gallery=build_gallery(all_examples(summary), images or {}, budget=budget))


def read_summary(path: Path) -> Summary:
    """Read and check a run's summary.json.

    Raises:
        BadInputError: when it is missing, is not JSON or does not fit the schema.
    """
    if not os.path.isfile(path):
        raise BadInputError(f"no summary at {path}; expected a run's directory, made by `leakscope audit --out …`")
    try:
        content = json.loads(read_file(path, most=_LARGEST_SUMMARY))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not JSON: {error}; run the audit again to write it") from error
    if not isinstance(content, dict):
        raise BadInputError(f"{path} must hold one JSON object, got {type(content).__name__}")
    return parse_summary(content)


def _data(summary: Summary) -> Markup | None:
    text = data_block(summary, limit=_MOST_DATA)
    return None if text is None else Markup(text)


def _fill(context: Mapping[str, Any], *, gallery: Gallery | None) -> str:
    return fill_page("report.html.j2", {**context, "gallery": gallery}, script="report.js")


def fill_page(template: str, context: Mapping[str, Any], *, script: str | None = None) -> str:
    """A page that loads nothing and runs nothing but `script`, one of our own files."""
    style, code = _asset("report.css"), None if script is None else _asset(script)
    policy = "; ".join(
        [
            "default-src 'none'",
            "img-src data:",
            f"style-src '{_digest(style)}'",
            *([] if code is None else [f"script-src '{_digest(code)}'"]),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    page = _environment().get_template(template)
    inline = None if code is None else Markup(code)
    text = page.render(context, style=Markup(style), script=inline, policy=policy)
    # JSON may smuggle in half a character, which no file can hold.
    return text.encode("utf-8", "replace").decode("utf-8")


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        db=decibel,
        number=_number,
        share=_share,
        points=_points,
        times=_times,
        mark=mark,
        plural=plural,
        remarks=remarks,
        sortable=_sortable,
        meaning=status_meaning,
        ending=status_mark,
        chance=chance_words,
        proven=guarantee_words,
        explained=_explained,
        reword=reword,
    )
    return found


@cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Content-security-policy source that allows exactly this inline text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _number(value: float | None, digits: int = 2) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.{digits}f}" if math.isfinite(value) else "∞"


def _share(value: float | None, digits: int = 0) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.{digits}f} %"


def _explained(value: float | None) -> str:
    """Share of an update that is explained; of nearly all of it, what is left: there the difference is."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.0f} %" if value < 0.995 or value >= 1 else f"all but {1 - value:.0e}"


def _points(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{0.0 - 100 * value:+.1f}".replace("-", "−")


def _times(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.2f}×"


def _sortable(value: float | None) -> str:
    """Number for the table's sorting; what is missing sorts last."""
    return "" if value is None or math.isnan(value) else repr(float(value)).replace("inf", "Infinity")
