"""The folder an attack's result goes to: checked before the attack, changed only once all is written."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torch import Tensor

from leakscope.errors import BadInputError, StorageError, UsageError
from leakscope.files import private_folder, save_images, write_tensors
from leakscope.files.opening import path_text
from leakscope.regular_files import read_file

RESULT = "result.json"
INPUTS = "inputs.safetensors"
_LARGEST_RESULT = 50_000_000
# Names in an old result.json are believed only where an attack may have written them.
_OURS = re.compile(r"(image|update-\d{4,})-\d{4,}\.png|(update-\d{4,}-)?inputs\.safetensors")


@contextmanager
def result_folder(out: Path) -> Iterator[Path]:
    """Yield an empty folder inside `out`; what is in it at the end replaces the result that was in `out`.

    An error, or an interrupt, leaves `out` as it was.
    """
    path_text(out)
    missing = [folder for folder in [out, *out.parents] if not os.path.lexists(folder)]
    old = _list_files(out)
    staging = out / f".new-{secrets.token_hex(8)}"
    try:
        private_folder(out)
        private_folder(staging)
        yield staging
        _replace(out, staging, old)
        missing.clear()
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        with suppress(OSError):
            for folder in missing:
                folder.rmdir()


def save_inputs(
    folder: Path, inputs: Tensor, *, is_unit_range: bool = True, prefix: str = "image"
) -> tuple[list[str], str | None]:
    """Write a reconstruction as pictures, or as tensors where it has no picture; return the names of the files."""
    if is_unit_range and inputs.ndim == 4 and inputs.shape[1] in (1, 3) and bool(inputs.isfinite().all()):
        return [path.name for path in save_images(folder, inputs, prefix=prefix)], None
    name = INPUTS if prefix == "image" else f"{prefix}-{INPUTS}"
    return [], write_tensors(folder / name, {"inputs": inputs}).name


def save_tokens(folder: Path, tokens: Tensor, *, prefix: str = "image") -> str:
    """Write a set of tokens; return the name of the file."""
    name = INPUTS if prefix == "image" else f"{prefix}-{INPUTS}"
    return write_tensors(folder / name, {"tokens": tokens}).name


def _list_files(out: Path) -> list[str]:
    """Names of the files that the result already in `out` speaks of."""
    path = out / RESULT
    if not os.path.lexists(path):
        if os.path.lexists(out / "summary.json"):
            raise UsageError(f"{out} holds the run of an audit, whose report would be replaced; choose another --out")
        return []
    try:
        result = json.loads(read_file(path, most=_LARGEST_RESULT))
        names = [*result["images"], result.get("inputs")]
    except (BadInputError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{path} is there already and is not the result of an attack; move it away, or choose another --out"
        ) from error
    return [name for name in names if isinstance(name, str) and _OURS.fullmatch(name)]


def _replace(out: Path, staging: Path, old: list[str]) -> None:
    # The result last: whoever finds it finds its files.
    new = sorted(os.listdir(staging), key=lambda name: (name == RESULT, name))
    try:
        for name in set(old) - set(new):
            (out / name).unlink(missing_ok=True)
        for name in new:
            os.replace(staging / name, out / name)
    except OSError as error:
        raise StorageError(f"{out}: cannot replace {error.filename!r} ({error.strerror}); choose another") from error
