"""`leakscope prior`: train a generator on public images, and look at what it makes."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from torch import Tensor

    from leakscope.priors import Progress, Recipe, Trainer

app = typer.Typer(
    name="prior",
    help="Generators that the attacks gias and ggl search instead of pixels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_KEY = "leakscope-prior-training"
_SAVE_EVERY = 10.0
_SPLITS = ("train", "test", "all")


@app.command()
def train(
    data: str = typer.Option(help="Public images: a named set, or folder:<path>."),
    out: Path = typer.Option(Path("prior.safetensors"), help="File to write."),
    epochs: int = typer.Option(8, help="Passes over the images."),
    latent: int = typer.Option(32, help="Numbers that describe an image."),
    width: int = typer.Option(16, help="Channels of the last stage; more is sharper and slower."),
    limit: int = typer.Option(20_000, help="At most this many images, drawn by --seed."),
    size: int | None = typer.Option(None, help="Side to bring the images to; needed where they differ."),
    split: str | None = typer.Option(
        None, help="Part of the set: train, test or all (default: train; all of a folder without one)."
    ),
    seed: int = typer.Option(0, help="Seed of the weights, the order and the noise."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Train a small generator; killed, the same command continues.

    Example: leakscope prior train --data fashion-mnist --out prior.safetensors
    """
    from leakscope.errors import UsageError
    from leakscope.matching.prior_files import save_prior
    from leakscope.priors import Recipe, Trainer

    if out.exists():
        raise UsageError(f"{out} is there already; remove it to train it anew, or choose another --out")
    recipe = Recipe(latent=latent, width=width, epochs=epochs, seed=seed)
    images = _images(data, split=split, limit=limit, size=size, seed=seed)
    checkpoint = out.with_name(out.name + ".part")
    identity = _identity(data, recipe, images)
    trainer = Trainer(images, recipe, _resumed(checkpoint, identity))
    began, error = time.monotonic(), _trained(trainer, checkpoint, identity)
    prior = trainer.prior(f"{len(images)} images of {data}, {epochs} epochs, seed {seed}")
    save_prior(out, prior)
    checkpoint.unlink(missing_ok=True)
    result = {"prior": str(out), "about": prior.about, "image_shape": list(images.shape[1:]), "latent": latent,
              "rmse": error, "sha256": prior.fingerprint, "seconds": round(time.monotonic() - began, 1)}  # fmt: skip
    typer.echo(json.dumps(result, indent=1) if as_json else f"{out}: {prior.about}; error of the last steps {error}")


@app.command()
def show(
    prior: Path = typer.Argument(help="Prior file."),
    out: Path = typer.Option(Path("runs/prior"), help="Directory for the images."),
    count: int = typer.Option(16, min=1, help="How many to make."),
    size: int = typer.Option(32, min=1, help="Side of the images, where the prior leaves it open."),
    seed: int = typer.Option(0, help="Seed of the latents."),
) -> None:
    """Save images made from random latents: one look says whether a prior is any good.

    Example: leakscope prior show prior.safetensors --out runs/prior
    """
    import torch

    from leakscope import rng
    from leakscope.files import private_folder, save_images
    from leakscope.matching.prior_files import load_prior

    loaded = load_prior(prior)
    fitted = loaded.at(loaded.image_shape or (3, size, size), like=torch.empty(0))
    with torch.no_grad():
        images = fitted.decode(fitted.sample(count, rng.generator(seed, "prior", "show")))
    typer.echo(f"{loaded!r}: {loaded.about}")
    for path in save_images(private_folder(out), images):
        typer.echo(f"image: {path}")


def _images(data: str, *, split: str | None, limit: int, size: int | None, seed: int) -> Tensor:
    from leakscope.data.load import load, open_set
    from leakscope.errors import MissingDataError, UsageError

    if limit < 1:
        raise UsageError(f"--limit must be ≥ 1, got {limit}")
    if split not in (None, *_SPLITS):
        raise UsageError(f"--split must be one of {', '.join(_SPLITS)}, got {split!r}")
    part = split or _usual_split(data)
    try:
        count = min(limit, len(open_set(data, part, size=size)))
        return load(data, split=part, count=count, seed=seed, size=size).inputs
    except (MissingDataError, UsageError) as error:
        # The messages of the library name its arguments.
        text = re.sub(r"\b(split|size)=(['\"]?)([^\s,;'\"]+)\2", r"--\1 \3", str(error))
        raise type(error)(text) from error


def _usual_split(data: str) -> str:
    """The training part; all of a folder that has none."""
    kind, _, folder = data.partition(":")
    return "all" if kind == "folder" and not (Path(folder).expanduser() / "train").is_dir() else "train"


def _identity(data: str, recipe: Recipe, images: Tensor) -> str:
    """What a checkpoint must agree on to be continued."""
    digest = hashlib.sha256(images.numpy().tobytes()).hexdigest()
    return json.dumps({"data": data, "images": digest, **asdict(recipe)}, sort_keys=True)


def _resumed(checkpoint: Path, identity: str) -> dict[str, Tensor] | None:
    from leakscope.errors import UsageError
    from leakscope.files.formats import read_any
    from leakscope.files.opening import open_source

    if not checkpoint.exists():
        return None
    with open_source(checkpoint, budget_mb=2048) as source:
        state, metadata = read_any(source)
    if metadata.get(_KEY) != identity:
        raise UsageError(
            f"{checkpoint} is the unfinished training of another prior (other data, options or seed); "
            "run the command it belongs to, remove it, or choose another --out"
        )
    return state


def _trained(trainer: Trainer, checkpoint: Path, identity: str) -> float:
    """Take all steps, keeping the state on disk; return the mean error of the last ones."""
    saved, recent = time.monotonic(), [0.0]
    with _shown(trainer.total) as say:
        try:
            for progress in trainer.run():
                recent = [*recent[-49:], progress.rmse] if progress.step > 1 else [progress.rmse]
                say(progress)
                if time.monotonic() - saved > _SAVE_EVERY:
                    _save(trainer, checkpoint, identity)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            _save(trainer, checkpoint, identity)
            raise
    return round(sum(recent) / len(recent), 4)


def _save(trainer: Trainer, checkpoint: Path, identity: str) -> None:
    import safetensors.torch

    from leakscope.files import write_atomic

    write_atomic(checkpoint, safetensors.torch.save(trainer.state(), metadata={_KEY: identity}))


@contextmanager
def _shown(total: int) -> Iterator[Callable[[Progress], None]]:
    """A bar with the time left on a terminal, a line every ten seconds elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training the prior", total=total)
        yield lambda progress: bar.update(task, completed=progress.step)


class _Lines:
    """Says how far training is, now and then."""

    def __init__(self) -> None:
        self.began = self.said = time.monotonic()
        self.first: int | None = None

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        # A continued run must not count the steps of the run before as its own speed.
        self.first = progress.step - 1 if self.first is None else self.first
        if now - self.said < _SAVE_EVERY:
            return
        self.said = now
        left = (now - self.began) / (progress.step - self.first) * (progress.total - progress.step)
        print(f"[{progress.step}/{progress.total}] error {progress.rmse:.4f}, {left:.0f} s left", file=sys.stderr)
