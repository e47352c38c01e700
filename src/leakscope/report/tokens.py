"""What is said of attacks that read tokens: recall and precision instead of decibels, and no grade."""

from __future__ import annotations

from collections.abc import Sequence

from leakscope.report.schema import CellRecord, Verdict
from leakscope.report.words import numbers_in, plural, tokens_words

UNGRADED = "ungraded"


def tokens_verdict(records: Sequence[CellRecord]) -> Verdict | None:
    """The verdict on texts; None where no update was scored by its tokens, or some were by pictures or rows."""
    scored = [record for record in records if record.column("token_recall")]
    if not scored or any(record.column("psnr") for record in records):
        return None
    failed = [record for record in records if record.status != "ok"]
    best = max(scored, key=_recall)
    chance = numbers_in(value for values in best.baselines.values() for value in values)
    beyond = _recall(best) > max(chance, default=0.0)
    told = [f"{record.data}: {tokens_words(record)}." for record in scored[:5]]
    last = f"{plural(len(failed), 'update')} of {len(records)} did not end ok." if failed else ""
    first = "Tokens are told by recall and precision; grades are of pictures and of rows of numbers."
    return Verdict(
        grade="?",
        status=UNGRADED,
        headline="Updates give away tokens of private texts" if beyond else "No more tokens were found than by chance",
        sentences=[sentence for sentence in (first, *told, last) if sentence],
        exit_code=3 if failed else 0,
    )


def _recall(record: CellRecord) -> float:
    return max(numbers_in(record.column("token_recall")), default=0.0)
