"""Whether a run's examples are pictures, and its sentences in words that fit where they are not."""

from __future__ import annotations

from collections.abc import Iterable

from leakscope.report.schema import CellRecord, Verdict

# What is said of pictures, and of rows of numbers instead; longer phrases first.
_PHRASES = (
    ("faint hints of colour and brightness of private images", "faint hints of private examples"),
    ("faint hints of colour or brightness", "faint hints"),
    ("the coarse shapes of private images", "private examples coarsely"),
    ("coarse shapes of private images", "coarse values of private examples"),
    ("coarse shapes, not recognisable", "coarse values"),
    ("clearly visible private images", "private examples closely"),
    ("clear pictures of private data", "close copies of private examples"),
    ("clearly visible", "close"),
    ("private images", "private examples"),
    ("worst image", "worst example"),
    ("an unrelated picture", "an unrelated example"),
    ("nearest public picture", "nearest public example"),
    ("the nearest of many other pictures", "the nearest of many other examples"),
)


def is_picture(cell: CellRecord) -> bool:
    """Whether the examples of a cell are pictures: only those have a structural similarity."""
    return any(value is not None for value in cell.column("ssim"))


def noun_of(cells: Iterable[CellRecord]) -> str:
    """What to call one example of a run: "image" only where every scored cell holds pictures."""
    scored = [cell for cell in cells if cell.column("psnr")]
    return "image" if scored and all(map(is_picture, scored)) else "example"


def reword(text: str, noun: str) -> str:
    """A sentence written for pictures, in words that fit `noun`."""
    if noun != "image":
        for phrase, instead in _PHRASES:
            text = text.replace(phrase, instead)
    return text


def reword_verdict(found: Verdict, noun: str) -> Verdict:
    """A verdict in words that fit `noun`."""
    return found.model_copy(
        update={
            "headline": reword(found.headline, noun),
            "sentences": [reword(sentence, noun) for sentence in found.sentences],
        }
    )
