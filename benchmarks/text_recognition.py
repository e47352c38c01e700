"""How fast a small recogniser learns to read rendered words, and what it reads of real ones.

    [LEAKSCOPE_DATA=<folder>] python benchmarks/text_recognition.py --out runs/text [--words 640000] [--threads 2]

Trains `crnn-small` on words rendered while it trains, half of them plain and half of them scenes, none twice, and
prints the share of held-out words that are read without a mistake as time goes on. At the end, the same on the 2,000
held-out words of each style, by kind of text, and on IIIT 5K-Words where LEAKSCOPE_DATA has them. Every two minutes a
checkpoint is written; the same command continues from it, and reports again where training is finished.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

import leakscope as ls
from leakscope.data import RenderedWords, decode_texts
from leakscope.data.word_texts import CLASSES
from leakscope.data.words import as_inputs
from leakscope.files import write_atomic
from leakscope.rng import generator
from leakscope.tasks import CTCText
from leakscope.types import Batch

STYLES = ("plain", "scene")
TASK = CTCText()
# Words that are rendered together, while the chunk before is trained on.
CHUNK = 2_048
CHECKPOINT = "checkpoint.safetensors"
CHECKPOINT_SECONDS = 120
TESTED_ON_THE_WAY = 500


@dataclass
class Progress:
    """How far a training is: steps, seconds of training over all processes that continued it, and its curve."""

    step: int = 0
    seconds: float = 0.0
    curve: list[dict[str, float]] = field(default_factory=list)


def build_network(name: str, *, seed: int) -> nn.Module:
    """A recogniser of 36 characters that takes pictures in [0, 1]."""
    return ls.models.build(name, num_classes=CLASSES, image_size=(32, 100), normalise=((0.5,), (0.5,)), seed=seed)


def render(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures and targets of one chunk, half of it of each style; a function of its number alone."""
    half = range(number * CHUNK // 2, (number + 1) * CHUNK // 2)
    sources = [RenderedWords(style) for style in STYLES]
    pictures, targets = zip(*((one.pictures(half), one.targets(half).numpy()) for one in sources), strict=True)
    return np.concatenate(pictures), np.concatenate(targets)


def serve(link: Connection) -> None:
    """Render the chunks that are asked for, until whoever asks is gone."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            link.send(render(link.recv()))


def minibatches(first: int, steps: int, *, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Mini-batches from step `first` on, rendered by another process, which ends with this one."""
    link, other = (context := get_context("spawn")).Pipe()
    context.Process(target=serve, args=(other,), daemon=True).start()
    # Only the other process may hold its end: it then notices when this process is gone.
    other.close()
    per_chunk = CHUNK // batch_size
    link.send(first // per_chunk)
    for chunk in range(first // per_chunk, -(-steps // per_chunk)):
        pictures, targets = link.recv()
        link.send(chunk + 1)
        order = torch.randperm(CHUNK, generator=generator(0, "order", chunk)).numpy()
        for step in range(max(first, chunk * per_chunk), min(steps, (chunk + 1) * per_chunk)):
            rows = order[step % per_chunk * batch_size :][:batch_size]
            yield as_inputs(pictures[rows]), torch.from_numpy(targets[rows])
    link.close()


def rate_at(step: int, steps: int, *, highest: float) -> float:
    """One cycle: up in a straight line for a tenth of the steps, then down along a cosine."""
    share = step / steps
    if share < 0.1:
        return highest * (0.05 + 0.95 * share / 0.1)
    return highest * (0.002 + 0.998 * 0.5 * (1 + math.cos(math.pi * (share - 0.1) / 0.9)))


def train(model: nn.Module, told: argparse.Namespace, folder: Path) -> Progress:
    """Train to the end, from the last checkpoint where there is one."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=told.lr, weight_decay=1e-4)
    cycle, settings = told.words // told.batch_size, _settings(told)
    steps = cycle if told.stop_at is None else min(cycle, told.stop_at // told.batch_size)
    progress = _restore(model, optimiser, folder, settings)
    tests = {style: RenderedWords(style, held_out=True).batch(range(TESTED_ON_THE_WAY)) for style in STYLES}
    began, saved, losses = time.perf_counter() - progress.seconds, time.perf_counter(), list[float]()
    model.train()
    for inputs, targets in minibatches(progress.step, steps, batch_size=told.batch_size):
        rate = rate_at(progress.step, cycle, highest=told.lr)
        losses.append(train_step(model, optimiser, inputs, targets, rate=rate))
        progress.step += 1
        if progress.step == steps or time.perf_counter() - saved > told.every:
            progress.seconds = time.perf_counter() - began
            row = {
                "seconds": progress.seconds,
                "words": progress.step * told.batch_size,
                "loss": float(np.mean(losses)),
            }
            row |= {f"held-out {style}": read_share(model, test) for style, test in tests.items()}
            progress.curve.append(row)
            # A line that was printed is safe.
            _save(model, optimiser, progress, folder, settings)
            print(_line(row), flush=True)
            saved, losses = time.perf_counter(), []
            model.train()
    return progress


def train_step(
    model: nn.Module, optimiser: torch.optim.Optimizer, inputs: Tensor, targets: Tensor, *, rate: float
) -> float:
    """One step at this rate; the loss before it."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad(set_to_none=True)
    loss = TASK.loss(model(inputs), targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimiser.step()
    return loss.item()


def _settings(told: argparse.Namespace) -> dict[str, float]:
    """What a checkpoint must have been written with to be continued."""
    return {name: vars(told)[name] for name in ("words", "batch_size", "lr", "seed")}


@torch.no_grad()
def read_share(model: nn.Module, test: Batch) -> float:
    """Share of words that are read without a mistake."""
    model.eval()
    parts = zip(test.inputs.split(256), test.targets.split(256), strict=True)
    return sum(TASK.count_correct(model(inputs), targets) for inputs, targets in parts) / len(test)


def _line(row: dict[str, float]) -> str:
    shares = ", ".join(f"{name} {100 * value:.1f} %" for name, value in row.items() if name.startswith("held"))
    return f"{row['seconds'] / 60:5.1f} min {row['words']:8,.0f} words  loss {row['loss']:.3f}  {shares}"


def _save(
    model: nn.Module, optimiser: torch.optim.Optimizer, progress: Progress, folder: Path, settings: dict[str, float]
) -> None:
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        tensors |= {f"optimiser.{key}.{name}": value for key, value in optimiser.state[parameter].items()}
    told = {"progress": json.dumps(asdict(progress)), "settings": json.dumps(settings)}
    write_atomic(folder / CHECKPOINT, save(tensors, metadata=told))
    write_atomic(folder / "crnn-small.safetensors", save(model.state_dict()))


def _restore(model: nn.Module, optimiser: torch.optim.Optimizer, folder: Path, settings: dict[str, float]) -> Progress:
    path = folder / CHECKPOINT
    if not path.is_file():
        return Progress()
    with safe_open(path, "pt") as file:
        told = file.metadata()
    if json.loads(told["settings"]) != settings:
        raise SystemExit(f"{path} is of a training with {told['settings']}, not {settings}; choose another --out")
    tensors = load_file(path)
    model.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("model.")})
    for name, parameter in model.named_parameters():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            optimiser.state[parameter][key] = tensors[f"optimiser.{key}.{name}"]
    found = Progress(**json.loads(told["progress"]))
    print(f"continues at step {found.step:,}", flush=True)
    return found


def kind_of_text(text: str) -> str:
    """Letters, digits or both; common words are letters, too."""
    return "digits" if text.isdigit() else "letters" if text.isalpha() else "letters and digits"


def report(model: nn.Module) -> dict[str, float]:
    """Word accuracy on all held-out words of both styles, by kind of text, and on real words."""
    found: dict[str, float] = {}
    for style in STYLES:
        test = ls.data.load(f"words-{style}", split="test")
        found[f"words-{style}"] = read_share(model, test)
        kinds = [kind_of_text(text) for text in decode_texts(test.targets)]
        for kind in dict.fromkeys(kinds):
            rows = [row for row, one in enumerate(kinds) if one == kind]
            found[f"words-{style}, {kind}"] = read_share(model, Batch(test.inputs[rows], test.targets[rows]))
    if ls.data.is_available("iiit5k"):
        real = ls.data.load("iiit5k")
        found[f"iiit5k, {len(real)} words"] = read_share(model, real)
    return found


def main() -> None:
    """Train, or continue, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoint, weights and curve")
    parser.add_argument("--words", type=int, default=640_000, help="words to train on")
    parser.add_argument("--stop-at", type=int, default=None, help="words after which to stop within the cycle of rates")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3, help="highest rate of the cycle")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the network's first weights")
    parser.add_argument("--every", type=float, default=CHECKPOINT_SECONDS, help="seconds between checkpoints")
    told = parser.parse_args()
    if CHUNK % told.batch_size:
        parser.error(f"--batch-size must divide {CHUNK}, got {told.batch_size}")
    torch.set_num_threads(told.threads)
    model = build_network("crnn-small", seed=told.seed)
    print(f"crnn-small, {sum(value.numel() for value in model.parameters()):,} parameters", flush=True)
    progress = train(model, told, told.out)
    found = report(model)
    for name, value in found.items():
        print(f"{name}: {100 * value:.1f} %")
    content = {"minutes": progress.seconds / 60, "words": told.words, "accuracy": found, "curve": progress.curve}
    write_atomic(told.out / "result.json", json.dumps(content, indent=1).encode())


if __name__ == "__main__":
    main()
