"""P5: no path escapes, on the way in or out."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import numpy as np
import pytest
import torch

from leakscope.errors import BadInputError, StorageError
from leakscope.files import load_state, private_folder, save_update, write_atomic
from leakscope.files.names import name_problem
from leakscope.types import SharedUpdate

_HOSTILE = [
    "../w",
    "a/../../w",
    "..\\w",
    "/etc/w",
    "\\\\host\\w",
    "C:\\w",
    "c:w",
    "w\0x",
    "w\nx",
    "w\x1b[31m",
    "w\u202ex",
    "w\ud800",
    "w" * 600,
    "",
]


@pytest.mark.parametrize("name", _HOSTILE)
def test_hostile_names_are_refused_in_every_format(put, build, name: str) -> None:
    header = {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    with pytest.raises(BadInputError) as caught:
        load_state(put("n.safetensors", build["header"](header, b"\0" * 4)))
    assert caught.value.args[0].isprintable()
    if "\ud800" not in name:
        with pytest.raises(BadInputError):
            load_state(put("n.npz", build["zip"]({name + ".npy": build["npy"](np.zeros(1))})))
        with pytest.raises(BadInputError):
            load_state(put("n.pt", build["torch"]({name: torch.zeros(1)})))
    with pytest.raises(BadInputError):
        save_update("unwritten.safetensors", SharedUpdate("gradient", {name: torch.zeros(1)}))
    assert not Path("unwritten.safetensors").exists()


@pytest.mark.parametrize("name", ["conv.weight", "params/Dense_0/kernel", "größe", "0", "a..b", "w:0", "layer (1)"])
def test_ordinary_names_are_fine(name: str) -> None:
    assert name_problem(name) is None


def test_archive_members_outside_are_refused(put, build) -> None:
    good = build["npy"](np.zeros(1))
    for name in ("../w.npy", "/w.npy", "folder/", "w", "C:/w.npy"):
        with pytest.raises(BadInputError):
            load_state(put("m.npz", build["zip"]({"a.npy": good, name: good})))


def test_only_regular_files_are_read(tmp_path: Path, samples) -> None:
    real = tmp_path / "real.safetensors"
    real.write_bytes(samples[".safetensors"])
    (tmp_path / "link.safetensors").symlink_to(real)
    (tmp_path / "dangling.safetensors").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "empty.safetensors").touch()
    os.mkfifo(tmp_path / "fifo.safetensors")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.sock"))
        cases = {
            "link.safetensors": "symbolic link",
            "dangling.safetensors": "symbolic link",
            "folder.safetensors": "directory",
            "empty.safetensors": "empty file",
            "fifo.safetensors": "FIFO",
            "s.sock": "socket",
            "missing.safetensors": "no such file",
            "real.safetensors/x": "no such file",
            "/dev/zero": "device",
            "/dev/null": "device",
            "/proc/self/mem": "cannot be read|empty",
            "nul\0.safetensors": "NUL",
        }
        for name, message in cases.items():
            with pytest.raises(BadInputError, match=message):
                load_state(os.path.join(tmp_path, name))
    with pytest.raises(BadInputError, match="non-empty"):
        load_state("")
    assert load_state(real)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_a_typed_error(put, samples) -> None:
    path = put("s.npy", samples[".npy"])
    path.chmod(0)
    with pytest.raises(BadInputError, match="PermissionError"):
        load_state(path)


def test_new_folders_and_files_are_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        path = write_atomic(tmp_path / "a" / "b" / "c.bin", b"x")
        private_folder(tmp_path / "d" / "e")
    finally:
        os.umask(old)
    for folder in ("a", "a/b", "d", "d/e"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_existing_folders_keep_their_mode(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    write_atomic(tmp_path / "open" / "f", b"x")
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o755


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"old")
    (tmp_path / "link").symlink_to(victim)
    with pytest.raises(StorageError, match="symbolic link"):
        write_atomic(tmp_path / "link", b"new")
    with pytest.raises(StorageError, match="folder"):
        write_atomic(tmp_path, b"new")
    with pytest.raises(StorageError, match="NUL"):
        write_atomic(f"{tmp_path}/a\0b", b"new")
    with pytest.raises(StorageError, match=r"got a file|cannot create"):
        private_folder(victim / "below")
    assert victim.read_bytes() == b"old"
