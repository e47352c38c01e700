"""The page of an inspection: one inert HTML file, without a script and without anything from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_FOLDER = Path(__file__).parent / "templates"
_MARKS = {"no": "st-leak", "yes": "st-within"}


def render_inspection(result: Mapping[str, Any]) -> str:
    """The page of what `leakscope inspect` writes as JSON; every text in it is escaped."""
    style = (_FOLDER / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    page = _environment().get_template("inspection.html.j2")
    text = page.render(
        result=result, style=Markup(style), policy=policy, mark=_MARKS.get(str(result["answer"]), "st-unknown")
    )
    # Names of tensors may hold half a character, which no file can.
    return text.encode("utf-8", "replace").decode("utf-8")


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
