"""Finished trainings on disk, found again by what went into them.

The key covers the network's weights, the examples, the defence, all settings and the software, and what a client sends
of the first examples: so it changes with code of the user's own too, of a network, a loss or a defence.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from leakscope.client import digest, harden, run_client
from leakscope.defence import Defence
from leakscope.errors import UsageError
from leakscope.federated.utility import StepRatio, Utility
from leakscope.files import write_atomic
from leakscope.software import software
from leakscope.tasks import Task
from leakscope.tensors import hash_tensors
from leakscope.types import Batch, LocalTraining, Loss, SharedUpdate

# Of the examples that a client step is compared on.
_PROBED = 4
# What an object without a repr of its own shows: it tells nothing of its options, and may be another's tomorrow.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+", re.IGNORECASE)


def remember(folder: Path | str | None, key: Callable[[], str], compute: Callable[[], Utility]) -> Utility:
    """The training stored under `key` in `folder`, or else computed and stored; without a folder computed.

    A file that cannot be read back, torn or of another version, is computed again and replaced.
    """
    if folder is None:
        return compute()
    path = Path(folder) / f"{key()}.json"
    try:
        return _read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError):
        pass
    found = compute()
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(asdict(found)).encode())
    return found


def training_key(
    model: nn.Module,
    train: Batch,
    test: Batch,
    *,
    defence: Defence | None,
    loss: Loss | None,
    local: LocalTraining | None,
    settings: Mapping[str, Any],
) -> str:
    """Hash of all that decides a training; `settings` are named values with a repr that tells them, of which `task`."""
    told = {name: tell(name, value) for name, value in settings.items()}
    content = {
        "software": software(),
        "network": [tell("model", model), hash_tensors(model.state_dict())],
        "data": [digest(train), digest(test)],
        "defence": tell("defence", defence),
        "local": None if local is None else local.settings(),
        "settings": told,
        "probe": _probe(model, train, defence=defence, loss=loss, local=local, task=settings.get("task")),
    }
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def tell(name: str, value: object) -> str:
    """A text for `value` that is the same in every process and tells its options."""
    text = f"{type(value).__module__}.{type(value).__qualname__} {value!r}"
    if _ADDRESS.search(text):
        raise UsageError(
            f"a training cannot be cached by {name}={text[:80]}: its repr does not tell its options; "
            "make it a frozen dataclass of plain values, or leave out cache and directory"
        )
    return text


def _probe(
    model: nn.Module,
    train: Batch,
    *,
    defence: Defence | None,
    loss: Loss | None,
    local: LocalTraining | None,
    task: Task | None,
) -> str:
    """Hash of what one client sends of the first examples."""
    few = Batch(train.inputs[:_PROBED], train.targets[:_PROBED], train.bounds)
    network = harden(copy.deepcopy(model).eval(), defence)
    sent = run_client(network, few, defence=defence, local=local, loss=loss, task=task).update
    return hash_tensors({**sent.tensors, **sent.buffers}) if isinstance(sent, SharedUpdate) else "sealed"


def _read(text: str) -> Utility:
    fields = json.loads(text)
    ratio = fields.pop("step_ratio")
    low, high = fields.pop("interval")
    return Utility(**fields, interval=(low, high), step_ratio=None if ratio is None else StepRatio(**ratio))
