"""Reading and writing files of tensors from anyone.

Whatever a file holds, loading it ends in a valid value or in one `BadInputError`: no code of the
file runs, no more memory is taken than its size and the budget allow, nothing partial is returned.

Names are loaded on first use: a configuration is read without waiting for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leakscope.files.atomic import private_folder, write_atomic
    from leakscope.files.check import check_update
    from leakscope.files.formats import pack_tensors, read_tensors, unpack_tensors, write_tensors
    from leakscope.files.images import save_images
    from leakscope.files.state_dicts import delta
    from leakscope.files.updates import load_state, load_update, save_update

_HOMES = {
    "private_folder": "atomic",
    "write_atomic": "atomic",
    "check_update": "check",
    "pack_tensors": "formats",
    "read_tensors": "formats",
    "unpack_tensors": "formats",
    "write_tensors": "formats",
    "save_images": "images",
    "delta": "state_dicts",
    "load_state": "updates",
    "load_update": "updates",
    "save_update": "updates",
}

__all__ = [
    "check_update",
    "delta",
    "load_state",
    "load_update",
    "pack_tensors",
    "private_folder",
    "read_tensors",
    "save_images",
    "save_update",
    "unpack_tensors",
    "write_atomic",
    "write_tensors",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"leakscope.files.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'leakscope.files' has no attribute {name!r}")
