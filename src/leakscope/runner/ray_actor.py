"""What Ray runs on a node: an actor that takes bytes and returns bytes, JSON and safetensors inside.

This module does not import Ray. Nothing of ours is pickled: Ray passes bytes on as they are, and no method raises,
since Ray would send the exception as a pickle.
"""

from __future__ import annotations

import os
import platform
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch

from leakscope.errors import LeakscopeError, UsageError
from leakscope.runner import limits
from leakscope.runner.calls import NamedCall
from leakscope.runner.frames import pack_message, split_frame
from leakscope.runner.worker import answer, die_with_parent
from leakscope.software import software

# Where data are, and how much memory a file may take: what holds here holds on every node.
_VARIABLES = "LEAKSCOPE_"


def pack_start(call: NamedCall) -> bytes:
    """What an actor must know before its first cell; to be called in the sweep's own process."""
    told = {
        "function": call.function,
        "settings": call.settings,
        "folder": os.getcwd(),
        "path": [place for place in sys.path if place],
        "variables": {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)},
        "software": software(),
    }
    return pack_message(told)


class CellActor:
    """Runs cells in the process that Ray started for it, one at a time."""

    def start(self, message: bytes) -> bytes:
        """Prepare for cells; the answer is what the process uses itself, or why it cannot."""
        try:
            self._execute = _prepare(split_frame(message)[0])
            return pack_message({"private_mb": limits.private_mb()})
        except LeakscopeError as error:
            return pack_message({"refused": f"on node {platform.node()}: {error}"})
        except BaseException:
            _end()

    def run(self, message: bytes) -> bytes:
        """Run one cell."""
        try:
            header, data = answer(split_frame(message)[0], self._execute)
            # What follows is Ray's, and not to be counted against the cell.
            limits.cap_memory(None)
            return pack_message(header, data)
        except BaseException:
            _end()


def _end() -> NoReturn:
    traceback.print_exc()
    os._exit(1)


def _prepare(told: Mapping[str, Any]) -> NamedCall:
    die_with_parent()
    # One thread always, as in a process: sums in another order are other bytes.
    torch.set_num_threads(1)
    os.environ.update(told["variables"])
    # Paths of data and weights may be relative; a node without that folder says so when it reads them.
    if Path(told["folder"]).is_dir():
        os.chdir(told["folder"])
    # Behind what is there, as the node's own libraries come first.
    sys.path += [place for place in told["path"] if place not in sys.path]
    _check_software(told["software"])
    call = NamedCall(told["function"], told["settings"])
    call.find()
    return call


def _check_software(expected: Mapping[str, str]) -> None:
    found = software()
    other = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    if other:
        named = ", ".join(f"{name} {found.get(name, '–')} instead of {expected.get(name, '–')}" for name in other)
        raise UsageError(f"expected the software of the machine that runs the sweep, got {named}; install the same")
