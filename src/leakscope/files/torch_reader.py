"""Reading .pt and .pth: first as a description in this process, then by torch in a locked-down child."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakscope.errors import BadInputError, StorageError
from leakscope.files import torch_child
from leakscope.files.names import name_problem
from leakscope.files.opening import ByteSource, show
from leakscope.files.pickle_reader import Reader
from leakscope.files.pickle_symbols import Refused, TensorSpec
from leakscope.files.safetensors_reader import DTYPES, itemsize, read_safetensors
from leakscope.files.zips import MAX_RATIO, RATIO_FLOOR, open_zip

# About 14,000 tensors; interpreting this much takes about a second.
MAX_PICKLE = 2 * 2**20
# weights_only was bypassed twice (CVE-2025-32434, GHSA-63cw-57p8-fm3p); the last hole closed here.
SAFE_TORCH = (2, 10)
_CONTAINERS = ("state_dict", "model_state_dict", "model", "gradients", "grads", "update")
_HEADROOM = 256 * 2**20
_WALL_SECONDS = 120
_CPU_SECONDS = 60


def read_torch(source: ByteSource) -> dict[str, Tensor]:
    """Return the named tensors of a .pt file; a list gets the names "0", "1", and so on."""
    key, specs = inspect_torch(source)
    _require_safe_torch(source)
    return _load_in_child(source, key, specs)


def inspect_torch(source: ByteSource) -> tuple[str | None, dict[str, TensorSpec]]:
    """Check the archive and its pickle without running it; return what the child must deliver."""
    with open_zip(source) as archive:
        source.check_total(sum(member.file_size for member in archive.infolist()))
        prefix = _prefix(source, archive)
        size = archive.getinfo(f"{prefix}/data.pkl").file_size
        if size > MAX_PICKLE:
            raise source.error(f"expected a pickle of at most {MAX_PICKLE:,} bytes, got {size:,}; save tensors only")
        reader = Reader(archive.read(f"{prefix}/data.pkl"))
        try:
            described = reader.read()
        except Refused as error:
            raise source.error(f"{error}; save a plain dictionary of tensors, best as safetensors") from None
        _check_storages(source, archive, prefix, reader.tensors)
        _check_sums(source, archive)
    _check_expansion(source, reader.tensors)
    key, specs = _choose(source, described)
    return key, _check_names(source, specs)


def _prefix(source: ByteSource, archive: zipfile.ZipFile) -> str:
    names = archive.namelist()
    prefix = next(name.split("/", 1)[0] for name in names if name.endswith("/data.pkl"))
    if f"{prefix}/data.pkl" not in names or not all(name.startswith(prefix + "/") for name in names):
        raise source.error("archive members lie outside one common folder; write it again with torch.save")
    if f"{prefix}/constants.pkl" in names or any(name.startswith(f"{prefix}/code/") for name in names):
        raise source.error("is a TorchScript program, not tensors; save module.state_dict() instead")
    return prefix


def _check_storages(source: ByteSource, archive: zipfile.ZipFile, prefix: str, tensors: list[TensorSpec]) -> None:
    sizes = {member.filename: member.file_size for member in archive.infolist()}
    for storage in {spec.storage for spec in tensors}:
        needed = storage.count * itemsize(storage.code)
        stored = sizes.get(f"{prefix}/data/{storage.key}")
        if stored != needed:
            raise source.error(
                f"storage {storage.key} of {storage.count:,} × {storage.code} needs {needed:,} bytes, "
                f"the archive holds {'none' if stored is None else f'{stored:,}'}; write or copy it again"
            )


def _check_sums(source: ByteSource, archive: zipfile.ZipFile) -> None:
    """Compare every checksum: torch.load does not, and would return flipped bits as weights."""
    for member in archive.infolist():
        with archive.open(member) as stream:
            try:
                while stream.read(2**20):
                    pass
            except zipfile.BadZipFile:
                raise source.error(
                    f"the checksum of {show(member.filename)} differs: the file is damaged, or was saved with "
                    "checksums switched off; copy or save it again"
                ) from None


def _check_expansion(source: ByteSource, tensors: list[TensorSpec]) -> None:
    """Refuse a file whose tensors share storage so often that they outgrow it."""
    total = sum(spec.nbytes for spec in tensors)
    source.check_total(total)
    if total > RATIO_FLOOR and total > MAX_RATIO * source.size:
        raise source.error(
            f"tensors need {total:,} bytes, the file has {source.size:,}: they share storage; save clones instead"
        )


def _choose(source: ByteSource, described: Any) -> tuple[str | None, dict[str, TensorSpec]]:
    """Find the tensors: the whole object, or the one dictionary or list of tensors inside it."""
    if found := _tensors_of(described):
        return None, found
    if not isinstance(described, dict):
        raise source.error(
            "expected a dictionary or list of tensors only, got something else; save module.state_dict()"
        )
    inside = {key: _tensors_of(value) for key, value in described.items() if isinstance(key, str)}
    inside = {key: found for key, found in inside.items() if found}
    named = [key for key in _CONTAINERS if key in inside]
    if len(inside) != 1 and len(named) != 1:
        raise source.error(
            f"expected one dictionary of tensors, got {len(inside)} ({show(', '.join(inside))}); save the one meant"
        )
    key = named[0] if len(named) == 1 else next(iter(inside))
    return key, inside[key]


def _tensors_of(value: Any) -> dict[str, TensorSpec]:
    if isinstance(value, dict):
        # Numbers and text beside tensors (an epoch, a name) are not part of the update.
        return {str(name): item for name, item in value.items() if isinstance(item, TensorSpec)}
    if isinstance(value, list | tuple) and all(isinstance(item, TensorSpec) for item in value):
        return {str(index): item for index, item in enumerate(value)}
    return {}


def _check_names(source: ByteSource, specs: dict[str, TensorSpec]) -> dict[str, TensorSpec]:
    for name in specs:
        if problem := name_problem(name):
            raise source.error(f"the tensor name {problem}; rename it before saving", tensor=name)
    return specs


def _require_safe_torch(source: ByteSource) -> None:
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < SAFE_TORCH:
        raise source.error(
            f"reading .pt needs torch ≥ {SAFE_TORCH[0]}.{SAFE_TORCH[1]}, this is {torch.__version__}, whose "
            "weights_only guard can be bypassed; upgrade torch, or convert the file to safetensors"
        )
    if not Path("/proc/self/statm").exists():
        raise source.error("reading .pt needs process limits this system lacks; convert the file to safetensors")


def _load_in_child(source: ByteSource, key: str | None, specs: dict[str, TensorSpec]) -> dict[str, Tensor]:
    total = sum(spec.nbytes for spec in specs.values())
    # Never linked into a folder: no name to guess, nothing left behind after a crash.
    with tempfile.TemporaryFile() as target:
        job = {
            "sys_path": [os.path.abspath(entry) for entry in sys.path if entry],
            "source": source.file.fileno(),
            "target": target.fileno(),
            "key": key,
            # torch keeps each storage and, while copying it, the bytes it came from.
            "memory": 2 * (source.size + total) + _HEADROOM,
            "output": total + 2 * MAX_PICKLE,
            "seconds": _CPU_SECONDS,
        }
        _run_child(source, job)
        size = os.fstat(target.fileno()).st_size
        delivered, _ = read_safetensors(replace(source, file=target, size=size))  # type: ignore[arg-type]
    _compare(source, specs, delivered)
    return delivered


def _run_child(source: ByteSource, job: dict[str, Any]) -> None:
    keep = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
    try:
        done = subprocess.run(
            [sys.executable, "-I", torch_child.__file__, json.dumps(job)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(job["source"], job["target"]),
            env=keep | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            timeout=_WALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise source.error(
            f"torch did not finish reading it within {_WALL_SECONDS} s; convert it to safetensors"
        ) from None
    if done.returncode == 0:
        return
    reason = done.stderr.decode("utf-8", "replace").strip()[-300:] or f"exit status {done.returncode}"
    if done.returncode == torch_child.NO_SPACE:
        raise StorageError(f"{show(source.path)}: {job['output']:,} bytes of temporary space are needed; free some")
    raise source.error(f"torch refused it in the child process ({reason}); convert it to safetensors")


def _compare(source: ByteSource, specs: dict[str, TensorSpec], delivered: dict[str, Tensor]) -> None:
    """What torch loaded must be what the description said: otherwise two readers disagree on the file."""
    expected = {name: (spec.shape, DTYPES[spec.storage.code]) for name, spec in specs.items()}
    actual = {name: (tuple(value.shape), value.dtype) for name, value in delivered.items()}
    if expected != actual:
        odd = sorted(name for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name))
        raise BadInputError(
            f"{show(source.path)}: torch read other tensors than the file describes: {show(str(odd[:5]))}"
        )
