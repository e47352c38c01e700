"""Put what a program measured into a page of the documentation, between two marks."""

from __future__ import annotations

from pathlib import Path

from leakscope.files import write_atomic

DOCS = Path(__file__).resolve().parents[1] / "docs"


def replace_part(page: str, part: str, text: str) -> None:
    """Replace what stands between `<!-- part -->` and `<!-- end of part -->` in a page under docs."""
    path = DOCS / page
    begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
    before, rest = path.read_text(encoding="utf-8").split(begin)
    write_atomic(path, f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}".encode())
