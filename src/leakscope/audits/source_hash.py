"""Hashes of the user's own code, so that a cell is run again when the code it ran has changed."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from leakscope.registry import parse_spec, split_chain
from leakscope.user_code import import_function, is_code


def hash_code(names: Iterable[str], *, network: nn.Module | None = None) -> str | None:
    """Hash of the files that define the functions among `names`; None where there are none.

    Only the file of each function itself counts, not what it imports. `network` is what one of them built: its weights
    may come from a file that the function reads.
    """
    own = [name for name in names if is_code(name)]
    if not own:
        return None
    digest = hashlib.sha256()
    for name in own:
        digest.update(name.encode() + b"\0" + _source(name))
    for key, value in () if network is None else (*network.named_parameters(), *network.named_buffers()):
        digest.update(key.encode() + value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def hash_specs(*specs: str) -> str | None:
    """As `hash_code`, of attacks and defences with their options."""
    return hash_code(parse_spec(part)[0] for spec in specs for part in split_chain(spec))


def _source(name: str) -> bytes:
    function = import_function(name, allow_code=True, expected="a function of your own")
    home = function.__module__ if function.__module__ in sys.modules else name.partition(":")[0]
    file = sys.modules[home].__file__
    return b"" if file is None else Path(file).read_bytes()
