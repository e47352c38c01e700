"""How an attack may end, in plain words and with a colour."""

from __future__ import annotations

# Status → what it means for a reader. Only "ok" can show that something is safe.
MEANINGS = {
    "ok": "The attack finished and its result explains the update.",
    "no score": "The attack finished; what it returned has no score in decibels.",
    "unexplained": "What was rebuilt explains the update no better than an unrelated example, or the update is not "
    "what it was declared to be. It shows no protection.",
    "unfinished": "The attack was stopped while it still got closer. It shows no protection; give it more steps.",
    "diverged": "The attack went astray. It shows no protection.",
    "nan": "The attack ended in values that are no numbers. It shows no protection.",
    "oom": "The attack ran out of memory. It shows no protection.",
    "timeout": "The attack ran out of time. It shows no protection.",
    "error": "The attack failed. It shows no protection.",
    "not-run": "The attack did not run, or was stopped before it ended. It shows no protection.",
    "refused": "The attack could not be tried: it needs more than the scenario grants, or another network.",
    "sealed": "The update was encrypted: there was nothing to attack.",
}
_DOUBTFUL = ("unexplained", "unfinished")
_NOT_TRIED = ("refused", "sealed")


def status_meaning(status: str) -> str:
    """What a status means; empty for one nobody knows."""
    return MEANINGS.get(status, "")


def status_mark(status: str) -> str:
    """CSS class of a status: ok, doubtful, not tried, or failed."""
    if status == "ok":
        return "end-ok"
    return "end-doubt" if status in _DOUBTFUL else "end-none" if status in _NOT_TRIED else "end-failed"
