"""P30, P5: FIFOs, devices, sockets and folders where a file is expected end in one typed error, at once."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import leakscope as ls
from leakscope.audits import load_config, make_plan, parse_config
from leakscope.cli.result_folder import result_folder
from leakscope.data.pictures import decode
from leakscope.errors import LeakscopeError
from leakscope.files import load_state, load_update
from leakscope.matching.candidates import load_prior
from leakscope.models import load_weights
from leakscope.regular_files import hash_file, read_file
from leakscope.report import write_report


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """Break off what waits: a hanging test would only end with the whole run."""

    def stop(*_: object) -> None:
        raise AssertionError("it waits for a file that never ends")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _fifo(folder: Path, name: str) -> Path:
    os.mkfifo(folder / name)
    return folder / name


def _device(folder: Path, name: str) -> Path:
    (folder / name).symlink_to("/dev/zero")
    return folder / name


def _socket(folder: Path, name: str) -> Path:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / name))
    return folder / name


def _folder(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def _loop(folder: Path, name: str) -> Path:
    (folder / name).symlink_to(folder / name)
    return folder / name


def _open_result(path: Path) -> None:
    with result_folder(path.parent):
        pass


def _open_report(path: Path) -> None:
    write_report(path.parent)


def _open_own_data(path: Path) -> None:
    ls.data.load(str(path))


def _open_pictures(path: Path) -> None:
    ls.data.load(str(path.parent))


def _plan_audit(path: Path) -> None:
    make_plan(parse_config({"models": ["mlp"], "data": ["digits"], "weights": str(path)}))


def _open_set(path: Path) -> None:
    name = "cifar10" if path.suffix == ".bin" else "mnist"
    ls.data.load(name, root=path.parent)


def _put_labels(path: Path) -> Path:
    if os.path.isdir(path.parent):
        (path.parent / "t10k-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 1, 3]))
    return path


_READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "configuration": ("a.yaml", load_config),
    "update": ("u.safetensors", load_update),
    "npz update": ("u.npz", load_update),
    "pt update": ("u.pt", load_update),
    "state": ("s.safetensors", load_state),
    "weights": ("w.safetensors", lambda path: load_weights(ls.models.build("mlp", in_channels=1, image_size=8), path)),
    "audited weights": ("v.safetensors", _plan_audit),
    "prior": ("p.safetensors", load_prior),
    "own data": ("d.npz", _open_own_data),
    "named npz": ("mnist.npz", _open_set),
    "pictures": ("a.png", _open_pictures),
    "picture": ("a.jpg", decode),
    "idx": ("t10k-images-idx3-ubyte", lambda path: _open_set(_put_labels(path))),
    "cifar": ("test_batch.bin", _open_set),
    "result": ("result.json", _open_result),
    "summary": ("summary.json", _open_report),
    "whole file": ("x", lambda path: read_file(path, most=100)),
    "hash": ("x", hash_file),
}


@pytest.mark.parametrize("kind", [_fifo, _device, _socket, _folder, _loop])
@pytest.mark.parametrize("reader", _READERS)
def test_only_regular_files_are_read(tmp_path: Path, reader: str, kind: Callable[[Path, str], Path]) -> None:
    name, read = _READERS[reader]
    path = kind(tmp_path, name)
    with pytest.raises(LeakscopeError):
        read(path)


@pytest.mark.parametrize("reader", _READERS)
def test_a_path_with_nul_or_without_end_is_refused(tmp_path: Path, reader: str) -> None:
    _, read = _READERS[reader]
    odd = () if reader == "result" else ("a\nb\x1b[31m", "\udcff")
    for name in ("a\0b", "x" * 5000, *odd):
        with pytest.raises(LeakscopeError):
            read(tmp_path / name / "below")


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(LeakscopeError, match="expected at most 1,000,000 bytes, got more"):
        load_config(large)
