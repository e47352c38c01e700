"""P1: pickle never runs. Every payload would create a canary file if anything executed it."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from leakscope.errors import BadInputError
from leakscope.files import load_state, load_update, torch_reader
from leakscope.files import torch_child as child


class _Touch:
    """Unpickles to a shell command."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {self.canary}",)


def _archive(build, pickled: bytes) -> bytes:
    return build["zip"]({"archive/data.pkl": pickled, "archive/version": b"3\n", "archive/data/0": b"\0" * 4})


def _opcodes(canary: Path) -> dict[str, bytes]:
    """Pickle programs written by hand, as no honest writer would."""
    touch = f"touch {canary}".encode()
    text = b"X" + len(touch).to_bytes(4, "little") + touch
    system = b"cos\nsystem\n"
    return {
        "reduce": b"\x80\x02" + system + text + b"\x85R.",
        "setitem on a function": b"\x80\x02" + system + b"X\1\0\0\0a" + text + b"s.",
        "setitems on an ordered dict class": b"\x80\x02ccollections\nOrderedDict\n(X\1\0\0\0aX\1\0\0\0bu.",
        "build on a class": b"\x80\x02ctorch\nFloatStorage\n}" + text + b"K\1sb.",
        "bytearray bomb": b"\x80\x02cbuiltins\nbytearray\n\x8a\x06\0\0\0\0\0\1\x85R.",
        "instance": b"(" + text + b"ios\nsystem\n.",
        "object": b"(cos\nsystem\n" + text + b"o.",
        "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93" + text + b"\x85R.",
        "getattr": b"\x80\x02cbuiltins\ngetattr\ncos\nsystem\n\x85R.",
        "reduce of a rebuilt thing": b"\x80\x02ctorch._utils\n_rebuild_parameter\ncos\nsystem\nNN\x87R.",
        "extension": b"\x80\x02\x82\x01.",
        "persistent id of a function": b"\x80\x02cos\nsystem\nQ.",
        "persistent id of a fake": b"\x80\x02(X\7\0\0\0storage" + b"X\1\0\0\0a" * 4 + b"tQ.",
        "stop at once": b"\x80\x02.",
        "no stop": b"\x80\x02}",
        "marks": b"\x80\x02" + b"(" * 1000 + b".",
        "underflow": b"\x80\x02R.",
        "memo": b"\x80\x02h\5.",
        "unhashable key": b"\x80\x02}]K\1s.",
    }


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


def _corpus(canary: Path, build) -> dict[str, bytes]:
    payload = pickle.dumps(_Touch(canary), protocol=2)
    objects = np.array([_Touch(canary)], dtype=object)
    corpus = {
        "plain.pt": build["torch"](_Touch(canary)),
        "value.pt": build["torch"]({"w": torch.ones(1), "x": _Touch(canary)}),
        "nested.pt": build["torch"]({"state_dict": {"w": torch.ones(1), "deep": [({"x": _Touch(canary)},)]}}),
        "module.pt": build["torch"](torch.nn.Linear(1, 1)),
        "bare.pt": payload,
        "bare.safetensors": payload,
        "bare.npy": payload,
        "gzip.pt": gzip.compress(payload),
        "gzip.safetensors": gzip.compress(payload),
        "gzip.npz": gzip.compress(payload),
        "object.npy": build["npy"](objects),
        "object.npz": build["zip"]({"w.npy": build["npy"](objects)}),
        "member.npz": build["zip"]({"w.npy": payload}),
        "both.npz": build["zip"]({"w.npy": build["npy"](np.ones(1)), "archive/data.pkl": payload}),
        "script.pt": build["zip"]({"m/data.pkl": b"\x80\x02}.", "m/code/x.py": b"import os"}),
    }
    for name, program in _opcodes(canary).items():
        corpus[name + ".pt"] = _archive(build, program)
    return corpus


def test_no_payload_runs(put, build, canary: Path) -> None:
    for name, data in _corpus(canary, build).items():
        path = put(name, data)
        for load in (load_state, load_update):
            with pytest.raises(BadInputError):
                load(path)
        assert not canary.exists(), name


def test_the_payload_would_have_run(canary: Path) -> None:
    # Without this the corpus could be harmless by mistake.
    pickle.loads(pickle.dumps(_Touch(canary)))
    assert canary.exists()


def test_the_message_names_what_the_pickle_asked_for(put, build, canary: Path) -> None:
    path = put("u.pt", build["torch"]({"x": _Touch(canary)}))
    with pytest.raises(BadInputError, match=r"mentions 'posix.system'.*nothing was run"):
        load_state(path)


def test_old_pickles_get_advice(put, tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    torch.save({"w": torch.ones(1)}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(BadInputError, match=r"bare pickle.*current torch\.save"):
        load_state(path)


def test_an_old_torch_is_refused(put, samples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(BadInputError, match=r"needs torch ≥ 2\.10, this is 2\.9\.1"):
        load_state(put("s.pt", samples[".pt"]))


def test_the_child_alone_runs_no_payload_either(put, build, canary: Path) -> None:
    """The description is checked first; this is the second wall, reached on purpose."""
    path = put("u.pt", build["torch"]({"x": _Touch(canary)}))
    with path.open("rb") as source, tempfile.TemporaryFile() as target:
        job = {"sys_path": sys.path, "source": source.fileno(), "target": target.fileno(), "key": None}
        job |= {"memory": 2**28, "output": 2**20, "seconds": 20}
        opened = torch_reader.ByteSource(str(path), source, path.stat().st_size, 2**20)
        with pytest.raises(BadInputError, match="torch refused it in the child process"):
            torch_reader._run_child(opened, job)
        assert target.seek(0, os.SEEK_END) == 0
    assert not canary.exists()


_PROBE = """
import importlib.util, json, sys, os, socket, subprocess, resource
spec = importlib.util.spec_from_file_location("child", sys.argv[1])
child = importlib.util.module_from_spec(spec); spec.loader.exec_module(child)
child._lock_down({"memory": 2**26, "seconds": 20, "output": 1000})
def outcome(action):
    try:
        action()
    except BaseException as error:
        return type(error).__name__
    return "done"
report = {
    "socket": outcome(lambda: socket.socket()),
    "read": outcome(lambda: open("/etc/hostname")),
    "write": outcome(lambda: open(sys.argv[2], "w")),
    "system": outcome(lambda: os.system("touch " + sys.argv[2])),
    "popen": outcome(lambda: subprocess.Popen(["touch", sys.argv[2]])),
    "fork": outcome(os.fork),
    "memory": outcome(lambda: bytearray(2**28)),
    "limits": outcome(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))),
    "small": outcome(lambda: bytearray(2**20)),
}
print(json.dumps(report))
"""


def test_the_child_has_no_network_no_files_no_programs(canary: Path) -> None:
    assert child.__file__
    assert importlib.util.find_spec("resource"), "process limits are needed for this promise"
    arguments = [sys.executable, "-I", "-c", _PROBE, child.__file__, str(canary)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    report = json.loads(done.stdout)
    assert report.pop("small") == "done"
    assert report.pop("memory") == "MemoryError"
    assert set(report.values()) <= {"PermissionError", "OSError"}
    assert not canary.exists()
