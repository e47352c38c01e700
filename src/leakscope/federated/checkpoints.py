"""Finished rounds on disk: a training that was stopped continues from the last of them, to the same bytes.

    <folder>/training.json              whose rounds these are
    <folder>/rounds/0003.safetensors    the server's state after round 3: public weights and its optimiser
    <folder>/clients/1/0003.safetensors what client 1 keeps for itself, where it keeps something; no server has it
    <folder>/rounds/0003.json           its record, with the hashes of the states; written last: with it the round is
                                        finished

Every file is written whole or not at all. The state of a round is removed once a later round is finished.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakscope.errors import BadInputError, UsageError
from leakscope.federated.client import Client
from leakscope.federated.faults import Failure
from leakscope.federated.play import RoundRecord
from leakscope.federated.server import Server
from leakscope.files import pack_tensors, private_folder, unpack_tensors, write_atomic
from leakscope.regular_files import read_file
from leakscope.steps.local import Memory

HEADER = "training.json"
_ROUNDS, _CLIENTS = "rounds", "clients"
_NUMBERED = re.compile(r"(\d{4,})\.json")
_LARGEST_RECORD = 50_000_000


class Checkpoints:
    """The finished rounds of one training."""

    def __init__(self, folder: Path | str, identity: str) -> None:
        """Open or create `folder`; one that holds another training is refused."""
        self._folder = Path(folder)
        self._rounds = self._folder / _ROUNDS
        private_folder(self._rounds)
        header = self._folder / HEADER
        if not os.path.lexists(header):
            write_atomic(header, _as_json({"identity": identity}))
        elif _read_json(header).get("identity") != identity:
            raise UsageError(
                f"{self._folder} holds another training: its network, examples, settings or software differ; "
                "choose another folder, or remove that one to train again"
            )

    def restore(self, server: Server, clients: Sequence[Client]) -> list[RoundRecord]:
        """Bring server and clients to where the last finished round left them; returns the records up to there."""
        count = self._count_finished()
        if not count:
            return []
        contents = [_read_json(self._path(number, "json")) for number in range(count)]
        last = contents[-1]
        _load(self._read_state(self._path(count - 1, "safetensors"), str(last.get("state"))), server)
        hashes = last.get("clients", {})
        for client in clients:
            expected = hashes.get(str(client.number))
            path = self._own_path(client, count - 1)
            client.memory.restore({} if expected is None else self._read_state(path, str(expected)))
        return [_record_from(content, self._path(place, "json")) for place, content in enumerate(contents)]

    def save(self, server: Server, clients: Sequence[Client], record: RoundRecord) -> None:
        """Keep one more finished round."""
        content = {**asdict(record), "state": _write_state(self._path(record.round, "safetensors"), _state(server))}
        content["clients"] = {
            str(client.number): _write_state(self._own_path(client, record.round), own)
            for client in clients
            if (own := client.memory.state())
        }
        write_atomic(self._path(record.round, "json"), _as_json(content))
        if record.round:
            self._path(record.round - 1, "safetensors").unlink(missing_ok=True)
            for client in clients:
                self._own_path(client, record.round - 1).unlink(missing_ok=True)

    def _count_finished(self) -> int:
        found = {int(match[1]) for name in os.listdir(self._rounds) if (match := _NUMBERED.fullmatch(name))}
        if found != set(range(len(found))):
            gap = min(set(range(len(found))) - found)
            raise BadInputError(f"{self._rounds}: round {gap} is missing; remove {self._folder} to train again")
        return len(found)

    def _read_state(self, path: Path, expected: str) -> dict[str, Tensor]:
        data = read_file(path, most=path.stat().st_size if path.is_file() else 0)
        if hashlib.sha256(data).hexdigest() != expected:
            raise BadInputError(
                f"{path} is not what round {int(path.stem)} wrote; remove {self._folder} to train again"
            )
        return unpack_tensors(data, name=str(path))[0]

    def _path(self, number: int, suffix: str) -> Path:
        return self._rounds / f"{number:04d}.{suffix}"

    def _own_path(self, client: Client, number: int) -> Path:
        return self._folder / _CLIENTS / str(client.number) / f"{number:04d}.safetensors"


def _write_state(path: Path, state: dict[str, Tensor]) -> str:
    """Write named tensors; returns their hash."""
    data = pack_tensors(state)
    write_atomic(path, data)
    return hashlib.sha256(data).hexdigest()


def _state(server: Server) -> dict[str, Tensor]:
    """All that decides the server's part of the next round, by name."""
    found = {f"model/{name}": value for name, value in server.public_state().items()}
    found["server/step"] = torch.tensor(server.memory.step)
    for moment, tensors in (("first", server.memory.first), ("second", server.memory.second)):
        found |= {f"server/{moment}/{name}": value for name, value in tensors.items()}
    return found


def _load(state: dict[str, Tensor], server: Server) -> None:
    groups: dict[str, dict[str, Tensor]] = {}
    for full, value in state.items():
        owner, _, name = full.partition("/")
        if owner != "model":
            second, _, name = name.partition("/")
            owner = f"{owner}/{second}"
        groups.setdefault(owner, {})[name] = value
    server.load(groups["model"])
    server.memory = Memory(
        int(groups["server/step"][""]), groups.get("server/first", {}), groups.get("server/second", {})
    )


def _record_from(content: dict[str, Any], path: Path) -> RoundRecord:
    try:
        return RoundRecord(
            round=content["round"],
            accuracy=content["accuracy"],
            loss=content["loss"],
            weights={int(number): weight for number, weight in content["weights"].items()},
            train_losses={int(number): loss for number, loss in content["train_losses"].items()},
            failures=tuple(Failure(**one) for one in content["failures"]),
            validation=None if content["validation"] is None else tuple(map(tuple, content["validation"])),
            bytes_up=content["bytes_up"],
            bytes_down=content["bytes_down"],
            seconds=content["seconds"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInputError(
            f"{path} is not the record of a round ({type(error).__name__}); remove its folder"
        ) from error


def _as_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, sort_keys=True, indent=1) + "\n").encode()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_file(path, most=_LARGEST_RECORD))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path} is not JSON; remove its folder to train again") from error
    if not isinstance(content, dict):
        raise BadInputError(f"{path} must hold one JSON object, got {type(content).__name__}; remove its folder")
    return content
