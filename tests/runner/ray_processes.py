"""What the processes of a cluster do to the outside, read from /proc."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from pathlib import Path

_LISTEN = "0A"


def members(folder: Path) -> set[int]:
    """Processes that have inherited the token of the cluster in `folder`, or hold one of its files open."""
    return {process for process in _processes() if _belongs(process, folder)}


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if int(entry.name) != os.getpid()]


def _belongs(process: int, folder: Path) -> bool:
    with contextlib.suppress(OSError):
        if str(folder).encode() in Path(f"/proc/{process}/environ").read_bytes():
            return True
        return any(target.startswith(str(folder)) for target in _open_files(process))
    return False


def _open_files(process: int) -> list[str]:
    found = []
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(entry))
    return found


def listening(processes: set[int]) -> set[str]:
    """Addresses on which any of these processes accepts connections over a network."""
    sockets: dict[str, str] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN:
                sockets[f"socket:[{fields[9]}]"] = _address(fields[1].partition(":")[0])
    held: set[str] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            held.update(_open_files(process))
    return {address for inode, address in sockets.items() if inode in held}


def _address(text: str) -> str:
    # Words of four bytes, each in the order of this machine.
    packed = b"".join(bytes.fromhex(text[place : place + 8])[::-1] for place in range(0, len(text), 8))
    found = ipaddress.ip_address(packed)
    return str(found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else str(found)
