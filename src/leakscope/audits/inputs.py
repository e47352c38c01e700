"""Private data behind a run: where they are, what outputs call them, and whether they are still the same.

Outputs name data by the last part of their path, and tell their content by a number: 1 for what the run folder saw
first, 2 for what it saw when they had changed. The numbers stand for hashes under a random key; both are in a file of
the run folder that only its owner may read, and nowhere else. An unkeyed hash would tell who holds a picture that it is
among the private ones.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from leakscope.catalogue import is_data_code
from leakscope.data.load import is_folder
from leakscope.data.own import is_own
from leakscope.data.sets import FOLDER_PREFIX, SETS
from leakscope.errors import BadInputError
from leakscope.files import write_atomic
from leakscope.runner import JSON
from leakscope.types import Batch

RECORD = "inputs.json"
# Of a folder whose record is lost: a number that no earlier cell has.
_RANDOM_VERSIONS = 2**31
# How `shlex.join` writes an apostrophe inside quotes.
_APOSTROPHE_IN_A_SHELL = "'\"'\"'"


@dataclass(frozen=True)
class DataRecord:
    """Which data a run folder has seen: keyed hashes by public name, oldest first, counted from `first`."""

    key: bytes = field(repr=False)
    seen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    first: int = 1

    @classmethod
    def fresh(cls) -> DataRecord:
        """Of a folder that has seen nothing."""
        return cls(secrets.token_bytes(32))

    @classmethod
    def read(cls, folder: Path) -> DataRecord:
        """Of a run folder. Where it is lost or damaged, nothing that was computed there counts as the same data."""
        try:
            found = json.loads((folder / RECORD).read_bytes())
            seen = {str(name): tuple(map(str, hashes)) for name, hashes in found["seen"].items()}
            return cls(bytes.fromhex(found["key"]), seen, int(found["first"]))
        except FileNotFoundError:
            lost = (folder / "journal.jsonl").exists()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            lost = True
        return replace(cls.fresh(), first=1 + secrets.randbelow(_RANDOM_VERSIONS)) if lost else cls.fresh()

    def write(self, folder: Path) -> None:
        """Keep it in the run folder, for its owner alone."""
        content = {"key": self.key.hex(), "first": self.first, "seen": self.seen}
        write_atomic(folder / RECORD, json.dumps(content, indent=1).encode())

    def number(self, name: str, found: str) -> tuple[int, DataRecord]:
        """The version of the data called `name` whose hash is `found`, and the record that knows it."""
        known = self.seen.get(name, ())
        hashes = known if found in known else (*known, found)
        return self.first + hashes.index(found), replace(self, seen={**self.seen, name: hashes})

    def hash(self, batch: Batch) -> str:
        """Keyed hash of every number of a batch."""
        digest = hmac.new(self.key, digestmod="sha256")
        for values in (batch.inputs, batch.targets):
            digest.update(f"{values.dtype} {list(values.shape)}".encode())
            digest.update(values.contiguous().numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Inputs:
    """What workers need and outputs must not hold: locations and keyed hashes, by the public name of the data."""

    record: DataRecord = field(default_factory=DataRecord.fresh, repr=False)
    locations: Mapping[str, str] = field(default_factory=dict, repr=False)
    hashes: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    weights: str | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, JSON]:
        """As a worker gets it, on this machine or another."""
        record = {"key": self.record.key.hex(), "seen": self.record.seen, "first": self.record.first}
        return {"record": record, "locations": self.locations, "hashes": self.hashes, "weights": self.weights}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Inputs:
        """What `to_json` wrote."""
        seen = {name: tuple(hashes) for name, hashes in told["record"]["seen"].items()}
        record = DataRecord(bytes.fromhex(told["record"]["key"]), seen, told["record"]["first"])
        return cls(record, told["locations"], told["hashes"], told["weights"])

    def locate(self, name: str) -> str:
        """Where the data called `name` are."""
        return self.locations.get(name, name)

    def join(self, name: str) -> str:
        """One hash of all that is read of the data called `name`."""
        parts = self.hashes.get(name, {})
        text = " ".join(f"{part}={parts[part]}" for part in sorted(parts))
        return hmac.new(self.record.key, text.encode(), "sha256").hexdigest()

    @property
    def new_record(self) -> DataRecord:
        """The record with all data of this run in it."""
        record = self.record
        for name in self.hashes:
            record = record.number(name, self.join(name))[1]
        return record

    def check(self, name: str, part: str, batch: Batch) -> Batch:
        """The batch, if it is what the plan was made for."""
        planned = self.hashes.get(name, {}).get(part)
        if planned is None or hmac.compare_digest(planned, self.record.hash(batch)):
            return batch
        if is_data_code(self.locate(name)):
            raise BadInputError(
                f"{name!r} gives other examples in each process, so that results cannot be compared; draw "
                "random numbers in it from a fixed seed"
            )
        raise changed(f"the data {name!r}")

    def redact(self, text: str) -> str:
        """Text without the paths of private data: their public names instead."""
        named = [(location, name) for name, location in self.locations.items()]
        if self.weights is not None:
            named.append((self.weights, Path(self.weights).name))
        return redact_paths(text, named)


def redact_paths(text: str, named: Iterable[tuple[str, str]]) -> str:
    """Text with a name in the place of each path, however the path is written in a message or a command.

    Example:
        >>> redact_paths("leakscope attack /home/a/ward/client1.npz", [("/home/a/ward/client1.npz", "client1.npz")])
        'leakscope attack client1.npz'
    """
    spelled = [(path, name) for location, name in named for path in _spellings(location)]
    for path, name in sorted(spelled, key=lambda pair: len(pair[0]), reverse=True):
        text = text.replace(path, name)
    return text


def changed(what: str) -> BadInputError:
    """The error of a cell that finds something else than it was planned for."""
    return BadInputError(f"{what} changed after this run was planned; run the same command again to compute it again")


def name_data(locations: Sequence[str]) -> dict[str, str]:
    """A public name for each location of data, no two alike: sets and functions as they are, paths by their last part.

    Example:
        >>> name_data(["digits", "/home/a/ward", "/home/b/ward"])
        {'digits': 'digits', '/home/a/ward': 'ward', '/home/b/ward': 'ward (2)'}
    """
    found: dict[str, str] = {}
    for location in dict.fromkeys(locations):
        name = last_part(location) if _is_path(location) else location
        # A folder that is called like a set must not pass for it.
        taken = {*found.values(), *(SETS if _is_path(location) else ())}
        number = 2
        shown = name
        while shown in taken:
            shown, number = f"{name} ({number})", number + 1
        found[location] = shown
    return found


def _is_path(location: str) -> bool:
    return not is_data_code(location) and (is_own(location) or is_folder(location))


def last_part(location: str) -> str:
    """The name of a file or folder, whatever folders it is in."""
    path = Path(location.removeprefix(FOLDER_PREFIX)).expanduser()
    return path.name or path.resolve().name or "folder"


def _spellings(location: str) -> list[str]:
    """How a path may be written in a message or a command; a bare name is no path."""
    if not _is_path(location) and not Path(location).is_absolute() and "/" not in location:
        return []
    plain = location.removeprefix(FOLDER_PREFIX)
    path = Path(plain).expanduser()
    found = {plain, plain.rstrip("/"), str(path), str(path.absolute()), str(path.resolve())}
    found |= {_APOSTROPHE_IN_A_SHELL.join(text.split("'")) for text in found}
    return [text for text in found if text.strip("/") and ("/" in text.strip("/") or text.startswith("/"))]
