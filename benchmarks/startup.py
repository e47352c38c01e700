"""How long a user waits before anything happens: imports, `--help` and wrong usage, beside importing torch.

    python benchmarks/startup.py

Medians of alternating runs of fresh processes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "import torch": [sys.executable, "-c", "import torch"],
    "import leakscope": [sys.executable, "-c", "import leakscope"],
    "import leakscope, every public name": [
        sys.executable,
        "-c",
        "import leakscope as ls; [getattr(ls, name) for name in ls.__all__]",
    ],
    "leakscope --help": [sys.executable, "-m", "leakscope", "--help"],
    "leakscope audit, wrong attack": [sys.executable, "-m", "leakscope", "audit", "--attack", "dlgg"],
    "leakscope audit, wrong option": [sys.executable, "-m", "leakscope", "audit", "--attack", "idlg:step=3"],
    "leakscope audit, wrong number": [sys.executable, "-m", "leakscope", "audit", "--fail-above", "nan"],
}
RUNS = 7


def seconds(command: list[str]) -> float:
    """Wall time of one fresh process."""
    began = time.perf_counter()
    subprocess.run(command, check=False, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Print the medians."""
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    torch_alone = statistics.median(taken["import torch"])
    for name, values in taken.items():
        median = statistics.median(values)
        print(f"{name:38} {median:5.2f} s  ({median - torch_alone:+.2f} s beside torch)")


if __name__ == "__main__":
    main()
