"""P2: no file takes more memory than it declares; bombs end in a typed error, small and fast.

"Fast" is counted in calls of the interpreter, which are the same on every machine; seconds are not. An unhurried
machine makes several million calls a second. Work below the interpreter shows as memory.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import leakscope.files

# The peak is read from /proc: getrusage carries the parent's peak over into a new program.
_MEASURE = r"""
import json, re, sys, time
from leakscope.errors import BadInputError
from leakscope.files import load_state
def peak():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read())[1])
rows = {}
def load(path):
    try:
        load_state(path)
        return "loaded"
    except BadInputError as error:
        return str(error)
class Calls:
    count = 0
    def __call__(self, frame, event, argument):
        self.count += event in ("call", "c_call")
for path in sys.argv[1:]:
    before = peak()
    start = time.process_time()
    outcome = load(path)
    seconds, memory = time.process_time() - start, peak() - before
    calls = Calls()
    sys.setprofile(calls)
    load(path)
    sys.setprofile(None)
    rows[path.rsplit("/", 1)[-1]] = (outcome, seconds, memory, calls.count)
print(json.dumps(rows))
"""


def _deflated(data: bytes) -> bytes:
    """The same archive, every member deflated."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            new.writestr(member.filename, old.read(member))
    return buffer.getvalue()


def _overlapping() -> bytes:
    """Many directory entries that point at one piece of data."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a0.npy", np.random.default_rng(0).bytes(100_000))
        for index in range(1, 500):
            member = zipfile.ZipInfo(f"a{index}.npy")
            first = archive.filelist[0]
            for field in ("header_offset", "compress_size", "file_size", "CRC", "compress_type"):
                setattr(member, field, getattr(first, field))
            archive.filelist.append(member)
    return buffer.getvalue()


def _bombs(build) -> dict[str, bytes]:
    packed = io.BytesIO()
    np.savez_compressed(packed, w=np.zeros(10_000_000, dtype=np.float32))
    huge = {"w": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}}
    array = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
    many = b"PK\5\6" + b"\0" * 8 + (2**31).to_bytes(4, "little") + b"\0" * 6
    return {
        "deflated.pt": _deflated(build["torch"]({"w": torch.zeros(50_000_000)})),
        "stride0.pt": build["torch"]({"w": torch.zeros(1).expand(10**6, 10**6)}),
        "zeros.npz": packed.getvalue(),
        "overlapping.npz": _overlapping(),
        "header.safetensors": build["header"](huge, b"\0" * 64),
        "header.npy": b"\x93NUMPY\1\0" + len(array).to_bytes(2, "little") + array,
        "directory.npz": b"PK\3\4" + b"\0" * 100 + many,
        "nested.safetensors": build["header"](b'{"a":' + b"[" * 4_000_000),
        "marks.pt": build["zip"]({"a/data.pkl": b"\x80\x02" + b"(" * (2 * 2**20 - 3) + b"."}),
        "lists.pt": build["zip"]({"a/data.pkl": b"\x80\x02]" + b"}a" * (2**20 - 2) + b"."}),
    }


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_bombs_end_small_and_fast(tmp_path: Path, build) -> None:
    paths = []
    for name, data in _bombs(build).items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(data)
    assert paths[0].stat().st_size < 250_000
    assert paths[1].stat().st_size < 2_000
    source = str(Path(leakscope.files.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r})" + _MEASURE, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    rows = json.loads(done.stdout)
    assert rows["lists.pt"][2] > 10 * 1024, "a million dictionaries must show, or the measurement is blind"
    assert rows["lists.pt"][3] > 100_000, "half a million instructions must show, or the count is blind"
    for name, (outcome, seconds, kilobytes, calls) in rows.items():
        print(f"{name}: {seconds:.3f} s, {calls:,} calls, {kilobytes / 1024:.0f} MB more, {outcome[:90]}")
        assert outcome != "loaded", name
        assert calls < 8_000_000, name
        assert kilobytes < 400 * 1024, name
