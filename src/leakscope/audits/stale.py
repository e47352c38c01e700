"""Says why cells run again that the run folder already holds: what changed since they were computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from leakscope.audits.specs import CellSpec
from leakscope.errors import BadInputError
from leakscope.runner.cells import canonical_json
from leakscope.runner.events import Event, EventKind, OnEvent
from leakscope.runner.ledger import Ledger, load_cell

# Enough to find every reason; a folder may hold thousands of old cells.
_LOOKED_AT = 20
_SUBJECT_REASONS = {
    "weights_hash": "the file of the weights changed",
    "data_version": "the data changed",
    "code_hash": "the source of your own model or data, what it imports, or the weights it builds changed",
}
_REASONS = {
    "file_hashes": "a file that an option of the attack or the defence names changed",
    "code_hash": "the source of your own attack or defence, or what it imports, changed",
}
_UNKNOWN = "they were computed by an earlier version of leakscope, which did not record with what"
# Versions before 0.3 kept a hash of the data.
_GONE = ("data_hash",)


def explain_reruns(ledger: Ledger, cells: Sequence[CellSpec], tell: OnEvent) -> None:
    """Tell in one line why cells that were finished are not reused, where that can be told."""
    planned = {cell.key for cell in cells}
    stale = [key for key in ledger.entries if key not in planned]
    if not stale:
        return
    todo = {_settings(spec): spec for spec in (cell.to_json() for cell in cells if cell.key not in ledger.entries)}
    reasons: dict[str, None] = {}
    for key in islice(reversed(stale), _LOOKED_AT):
        try:
            old = dict(load_cell(ledger.directory, key, ledger.entries[key])[0].spec)
        except BadInputError:
            continue
        new = todo.get(_settings(old))
        reasons |= {} if new is None else dict.fromkeys(find_changes(old, new))
    if reasons:
        detail = f"cells that were finished run again: {'; '.join(reasons)}"
        tell(Event(EventKind.RECOVER, 0, len(cells), detail=detail))


def find_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed between two specs of the same settings, in words."""
    if "software" not in old:
        return [_UNKNOWN]
    before, after = old["software"], new.get("software", {})
    found = [
        "the source of leakscope changed"
        if name == "source"
        else f"{name} was {before.get(name, 'absent')} and is {after.get(name, 'absent')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    found += [text for name, text in _REASONS.items() if old.get(name) != new.get(name)]
    of_old, of_new = old["subject"], new["subject"]
    return found + [text for name, text in _SUBJECT_REASONS.items() if of_old.get(name) != of_new.get(name)]


def _settings(spec: Mapping[str, Any]) -> str:
    """What the user asked for, without hashes and versions; data by name, as earlier versions wrote a path."""
    subject = {name: value for name, value in spec["subject"].items() if name not in (*_SUBJECT_REASONS, *_GONE)}
    subject |= {name: Path(subject[name]).name for name in ("data", "weights") if subject.get(name)}
    kept = {name: value for name, value in spec.items() if name not in (*_REASONS, "software")}
    return canonical_json({**kept, "subject": subject})
