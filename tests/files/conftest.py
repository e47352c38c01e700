"""Valid files of every format, built once, and archives put together by hand."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from leakscope.rng import generator, normal


def small_tensors() -> dict[str, Tensor]:
    rng = generator(0, "files")
    return {
        "conv.weight": normal((4, 3, 3, 3), rng),
        "conv.bias": normal((4,), rng).half(),
        "fc.weight": normal((5, 16), rng).double(),
        "bn.num_batches_tracked": torch.tensor(7),
    }


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return buffer.getvalue()


def torch_bytes(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def npy_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header_bytes(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.fixture(scope="session")
def samples() -> dict[str, bytes]:
    """Suffix → bytes of one valid file."""
    tensors = small_tensors()
    arrays = {name: value.numpy() for name, value in tensors.items()}
    plain, packed = io.BytesIO(), io.BytesIO()
    np.savez(plain, **arrays)  # type: ignore[arg-type]
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    return {
        ".safetensors": safetensors.torch.save(tensors, metadata={"format": "pt"}),
        ".npz": plain.getvalue(),
        ".packed.npz": packed.getvalue(),
        ".npy": npy_bytes(arrays["fc.weight"]),
        ".pt": torch_bytes(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).state_dict()),
    }


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str, bytes], Path]:
    """Write bytes under a name in a fresh folder."""

    def write(name: str, data: bytes) -> Path:
        path = tmp_path / name
        # A new file: some file systems wait for the disk when an old one is cut and rewritten.
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        return path

    return write


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop after the checks of this process: starting torch once per damaged file takes hours."""
    from leakscope.files import torch_reader

    def described(_source: object, _key: object, specs: dict) -> dict[str, Tensor]:
        return {name: torch.zeros(spec.shape) for name, spec in specs.items()}

    monkeypatch.setattr(torch_reader, "_load_in_child", described)


@pytest.fixture(scope="session")
def build() -> dict[str, Callable]:
    """Makers of file contents by name."""
    return {
        "zip": zipped,
        "torch": torch_bytes,
        "npy": npy_bytes,
        "header": header_bytes,
        "tensors": small_tensors,
    }
