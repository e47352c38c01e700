"""Updates captured from Flower's quick start, declared wrongly in every usual way: what `leakscope attack` answers.

    python benchmarks/wrong_declarations.py [--steps 100] [--rows adam,rate] [--client 1] [--keep DIR]

Where flwr is not installed the same client functions run in this process, and the heading says so. Every row is one run
of the command, in scenario C, with its status, its exit code and the diagnosis line. Needs CIFAR-10 in the data folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from flower_quickstart import VARIANTS, Captured, capture, initial_weights
from safetensors.torch import save_file

import leakscope as ls
from leakscope.types import LocalTraining, SharedUpdate

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Row:
    """A captured update and how it is declared.

    Attributes:
        what: the row's first column.
        variant: the client that made the update.
        local: what is declared of its training.
        build: the network that is declared.
        weights: seed of the weights that are declared.
        sign: −1 declares before − after.
    """

    what: str
    variant: str
    local: LocalTraining
    build: str = "build_normalised"
    weights: int = 0
    sign: float = 1.0


_QUICK = LocalTraining(0.01, epochs=3, batch_size=32, momentum=0.9, shuffle=True)
_PLAIN = LocalTraining(0.01, epochs=8, batch_size=32, shuffle=True)
_ONE = LocalTraining(0.01, epochs=1, batch_size=32, shuffle=True)
_ADAM = LocalTraining(0.001, epochs=2, batch_size=32, optimiser="adam", shuffle=True)
_DECAY = LocalTraining(0.01, epochs=3, batch_size=32, weight_decay=0.1, shuffle=True)

ROWS = {
    "right": Row("right: momentum 0.9", "quick start", _QUICK),
    "right-plain": Row("right: 8 plain steps", "plain", _PLAIN),
    "right-adam": Row("right: Adam", "adam", _ADAM),
    "right-decay": Row("right: weight decay 0.1", "weight decay", _DECAY),
    "adam": Row("Adam declared as SGD", "adam", LocalTraining(0.01, epochs=2, batch_size=32, shuffle=True)),
    "momentum": Row("momentum 0.9 not declared", "quick start", LocalTraining(0.01, epochs=3, batch_size=32)),
    "rate": Row("rate 0.3 for 0.01", "plain", LocalTraining(0.3, epochs=8, batch_size=32)),
    "steps": Row("3 steps for 8", "plain", LocalTraining(0.01, epochs=3, batch_size=32)),
    "normalisation": Row("normalised outside the network", "quick start", _QUICK, build="build"),
    "dropout": Row("dropout declared inactive", "dropout", _ONE, build="build_dropout"),
    "summed": Row("summed loss declared as mean", "summed", _ONE),
    "weights": Row("other weights", "quick start", _QUICK, weights=1),
    "model": Row("other architecture, same shapes", "quick start", _QUICK, build="build_other"),
    "sign": Row("before − after", "quick start", _QUICK, sign=-1.0),
    "decay": Row("weight decay not declared", "weight decay", LocalTraining(0.01, epochs=3, batch_size=32)),
}


def main() -> None:
    """Capture, attack every row, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--client", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=None, help="keep captured updates here, and use those found there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        made_by = prepare(folder)
        print(f"Updates of {made_by}; client {given.client}; inverting-gradients, {given.steps} steps\n")
        print("| declaration | status | exit | explained | unrelated | diagnosis |\n|---|---|---|---|---|---|")
        for name in given.rows.split(","):
            print(attack(ROWS[name], folder, client=given.client, steps=given.steps), flush=True)


def prepare(folder: Path) -> str:
    """Save every captured update with the right declaration, and the weights; returns by what they were made."""
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / "made-by.txt"
    if told.exists():
        return told.read_text()
    captured, made_by = capture()
    for seed in (0, 1):
        save_file(initial_weights(seed), folder / f"weights-{seed}.safetensors")
    for (name, place), (after, count) in captured.items():
        start = initial_weights()
        delta = {key: after[key] - start[key] for key in start}
        ls.save_update(folder / f"{name}-{place}.safetensors", SharedUpdate("delta", delta, num_examples=count))
    check_complete(captured)
    told.write_text(made_by)
    return made_by


def check_complete(captured: Captured) -> None:
    """A client that failed must not go unnoticed."""
    missing = [name for name in VARIANTS if (name, 0) not in captured]
    if missing:
        raise SystemExit(f"no update was captured of {', '.join(missing)}")


def attack(row: Row, folder: Path, *, client: int, steps: int) -> str:
    """One row of the table, by the real command."""
    captured = ls.load_update(folder / f"{row.variant}-{client}.safetensors")
    tensors = {name: value * row.sign for name, value in captured.tensors.items()}
    declared = SharedUpdate("delta", tensors, num_examples=captured.num_examples, local=row.local)
    file = folder / "declared.safetensors"
    ls.save_update(file, declared)
    command = [
        *(sys.executable, "-m", "leakscope", "attack", str(file)),
        *("--model", f"flower_quickstart:{row.build}", "--weights", str(folder / f"weights-{row.weights}.safetensors")),
        *("--attack", f"inverting-gradients:steps={steps}", "--scenario", "C", "--input-shape", "3,32,32"),
        *("--out", str(folder / "result"), "--json"),
    ]
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)
    if not done.stdout.strip():
        return f"| {row.what} | – | {done.returncode} | | | {done.stderr.strip().splitlines()[-1]} |"
    result = json.loads(done.stdout)
    fit = result["fit"] or {"explained": float("nan"), "unrelated": float("nan"), "diagnosis": ""}
    return (
        f"| {row.what} | {result['status']} | {done.returncode} | {100 * fit['explained']:.0f} % | "
        f"{100 * fit['unrelated']:.0f} % | {fit['diagnosis'] or '–'} |"
    )


if __name__ == "__main__":
    main()
