"""The process that runs torch.load(weights_only=True) on a checked .pt file, and nothing else.

Started by file name with one JSON argument; imports nothing of leakscope. It opens no file itself:
input and output are inherited descriptors. Once torch is warm it gives up, for good, the right to
open another file or socket, to start a program and to grow, and only then looks at the input.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from typing import Any, NoReturn

REFUSED = 3
NO_SPACE = 4
_FORBIDDEN = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "ctypes.")
_LIMITS = {"RLIMIT_NOFILE": 0, "RLIMIT_CORE": 0, "RLIMIT_NPROC": 0}


def main() -> None:
    """Read the job, lock down, load, write safetensors to the inherited descriptor."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    sys.path[:0] = [entry for entry in job["sys_path"] if entry not in sys.path]
    import torch

    torch.set_num_threads(1)
    source = os.fdopen(job["source"], "rb")
    # The descriptor shares its position with the parent, which has read the directory at the end.
    source.seek(0)
    target = os.fdopen(job["target"], "wb")
    _warm_up(torch)
    _lock_down(job)
    try:
        loaded = torch.load(source, map_location="cpu", weights_only=True)
        _write(target, _select(torch, loaded, job["key"]))
    except OSError as error:
        _stop(
            NO_SPACE if error.errno in (errno.EFBIG, errno.ENOSPC, errno.EDQUOT) else REFUSED,
            f"{type(error).__name__}: {error}",
        )
    except Exception as error:
        _stop(REFUSED, f"{type(error).__name__}: {error}")


def _stop(code: int, message: str) -> NoReturn:
    os.write(2, message.encode("utf-8", "replace")[:2000])
    # No clean-up: an interpreter that has read hostile data should do as little more as possible.
    os._exit(code)


def _warm_up(torch: Any) -> None:
    """Load a sample, so that whatever torch imports late is in before the doors close."""
    buffer = io.BytesIO()
    torch.save({"a": torch.zeros(2, dtype=torch.bfloat16), "b": torch.nn.Parameter(torch.zeros(1))}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, map_location="cpu", weights_only=True)
    _write(io.BytesIO(), loaded)


def _lock_down(job: dict[str, Any]) -> None:
    # Here, because systems without limits must still be able to import this file's constants.
    import resource

    with open("/proc/self/statm", encoding="ascii") as statm:
        address_space = int(statm.read().split()[0]) * resource.getpagesize()
    used = resource.getrusage(resource.RUSAGE_SELF)
    limits = dict(_LIMITS)
    limits["RLIMIT_AS"] = address_space + job["memory"]
    limits["RLIMIT_CPU"] = int(used.ru_utime + used.ru_stime) + job["seconds"]
    limits["RLIMIT_FSIZE"] = job["output"]
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    # After the limits, because the hook also forbids to change them back (root could).
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event.startswith(_FORBIDDEN) or event == "resource.setrlimit":
        raise PermissionError(f"{event} is forbidden while a file is read")


def _select(torch: Any, loaded: Any, key: str | None) -> dict[str, Any]:
    chosen = loaded if key is None else loaded[key]
    if isinstance(chosen, dict):
        pairs = [(str(name), value) for name, value in chosen.items() if isinstance(value, torch.Tensor)]
    else:
        pairs = [(str(index), value) for index, value in enumerate(chosen)]
    for name, value in pairs:
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
            raise ValueError(f"tensor {name!r} is not a plain dense tensor")
    return dict(pairs)


def _write(target: Any, tensors: dict[str, Any]) -> None:
    """Stream safetensors: one contiguous copy at a time, in the order of the file."""
    import torch

    codes = {torch.bool: "BOOL", torch.uint8: "U8", torch.float16: "F16", torch.bfloat16: "BF16"}
    codes |= {torch.int8: "I8", torch.int16: "I16", torch.int32: "I32", torch.int64: "I64"}
    codes |= {torch.float32: "F32", torch.float64: "F64"}
    header, end = {}, 0
    for name, value in tensors.items():
        begin, end = end, end + value.numel() * value.element_size()
        header[name] = {"dtype": codes[value.dtype], "shape": list(value.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    target.write(len(text).to_bytes(8, "little") + text)
    for value in tensors.values():
        if value.numel():
            target.write(memoryview(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()))
    target.flush()


if __name__ == "__main__":
    main()
