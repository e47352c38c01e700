"""P3 by numbers: mutated files of every format give a typed error or a valid load, nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import time
import zipfile
from pathlib import Path

import pytest

from leakscope.errors import BadInputError
from leakscope.files import load_state
from leakscope.files.opening import open_source
from leakscope.files.torch_reader import inspect_torch

_EXTREMES = [
    b"\0" * 4,
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\0" * 8,
    b"\xff" * 8,
    b"PK\1\2",
    b"-1",
    b"{",
    b"(",
]
_NUMBERS = [b"0", b"1", b"-1", b"4294967296", b"9223372036854775808", b"1e9", b"null", b"[]", b'"x"', b"9" * 30]


def _mutate(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(changed) + 1)
        length = dice.randint(1, 16)
        kind = dice.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            changed[at : at + length] = dice.randbytes(length)
        elif kind == 2:
            extreme = dice.choice(_EXTREMES)
            changed[at : at + len(extreme)] = extreme
        elif kind == 3:
            del changed[at : at + length]
        elif kind == 4:
            changed[at:at] = changed[max(0, at - length) : at]
        else:
            other = dice.randrange(len(changed) + 1)
            changed[at : at + length] = changed[other : other + length]
    return bytes(changed)


def _mutate_header(data: bytes, dice: random.Random) -> bytes:
    """Change a number inside a safetensors header and keep its length right."""
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length]
    spot = dice.choice(list(re.finditer(rb"\d+", header)))
    header = header[: spot.start()] + dice.choice(_NUMBERS) + header[spot.end() :]
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def _mutate_member(data: bytes, dice: random.Random) -> bytes:
    """Change one member of an archive and write a directory and checksums that fit."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        members = old.infolist()
        chosen = dice.choice([m for m in members if m.filename.endswith((".npy", ".pkl"))])
        for member in members:
            content = old.read(member)
            if member is chosen:
                # The first 128 bytes of an array are its header; there most changes matter.
                head = 128 if member.filename.endswith(".npy") else len(content)
                content = _mutate(content[:head], dice) + content[head:]
            new.writestr(zipfile.ZipInfo(member.filename), content)
    return buffer.getvalue()


def _run(folder: Path, samples: dict[str, bytes], count: int) -> tuple[int, int]:
    dice = random.Random(0)
    deep = {".safetensors": _mutate_header, ".npz": _mutate_member, ".pt": _mutate_member}
    paths = {suffix: folder / f"mutated{suffix}" for suffix in samples}
    loaded = refused = 0
    for index in range(count):
        suffix = dice.choice(list(samples))
        change = deep.get(suffix, _mutate) if index % 2 else _mutate
        # A new file: some file systems wait for the disk when an old one is cut and rewritten.
        paths[suffix].unlink(missing_ok=True)
        paths[suffix].write_bytes(change(samples[suffix], dice))
        outcome = _outcome(paths[suffix])
        if isinstance(outcome, str):
            refused += 1
            assert "mutated" in outcome
        else:
            loaded += 1
            assert outcome <= 2**21
    return loaded, refused


def _outcome(path: Path) -> int | str:
    """Bytes of the tensors that were loaded, or the one error that is allowed."""
    try:
        return sum(value.nbytes for value in load_state(path, budget_mb=1).values())
    except BadInputError as error:
        return str(error)


def _assert_only_typed_errors(folder: Path, samples: dict[str, bytes], count: int) -> None:
    start = time.perf_counter()
    loaded, refused = _run(folder, samples, count)
    print(f"{count} mutated files: {refused} refused, {loaded} loaded, {time.perf_counter() - start:.1f} s")
    assert loaded + refused == count
    assert refused > count // 2
    assert loaded > count // 100, "mutations that never load test only the first check"


@pytest.mark.usefixtures("no_child")
def test_ten_thousand_mutations(tmp_path: Path, samples: dict[str, bytes]) -> None:
    _assert_only_typed_errors(tmp_path, samples, 10_000)


def test_a_mutated_pickle_ends_well_in_the_child_too(tmp_path: Path, samples: dict[str, bytes]) -> None:
    assert _child_sample(tmp_path, samples[".pt"], 1) == 1


@pytest.mark.slow
def test_many_mutated_pickles_end_well_in_the_child_too(tmp_path: Path, samples: dict[str, bytes]) -> None:
    assert _child_sample(tmp_path, samples[".pt"], 25) > 5


def _child_sample(folder: Path, data: bytes, count: int) -> int:
    """Load files whose mutation passes the first checks; return how many torch then loaded as described."""
    dice = random.Random(1)
    path = folder / "mutated.pt"
    passed = agreed = 0
    while passed < count:
        path.write_bytes(_mutate_member(data, dice))
        with contextlib.suppress(BadInputError), open_source(path, budget_mb=1) as source:
            _, specs = inspect_torch(source)
            passed += 1
            loaded = load_state(path, budget_mb=1)
            assert [tuple(value.shape) for value in loaded.values()] == [spec.shape for spec in specs.values()]
            agreed += 1
    return agreed


@pytest.mark.slow
@pytest.mark.usefixtures("no_child")
@pytest.mark.timeout(7200)
def test_a_million_mutations(tmp_path: Path, samples: dict[str, bytes]) -> None:
    _assert_only_typed_errors(tmp_path, samples, int(os.environ.get("LEAKSCOPE_FUZZ", "1000000")))
