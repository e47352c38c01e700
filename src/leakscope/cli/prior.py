"""`leakscope prior`: train a generator on public images, and look at what it makes."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from leakscope.cli.file_budget import budget_option
from leakscope.text import printable

if TYPE_CHECKING:
    from torch import Tensor

    from leakscope.priors import Trainer, TrainingSettings

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
    data: str = typer.Option(
        help="Public images: a named set, a folder of pictures, an .npz file, or package.module:function."
    ),
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
    budget_mb: float | None = budget_option(),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Train a small generator; killed, the same command continues.

    Example: leakscope prior train --data fashion-mnist --out prior.safetensors
    """
    from leakscope.errors import UsageError
    from leakscope.matching.candidates import save_prior
    from leakscope.priors import Trainer, TrainingSettings

    if os.path.lexists(out):
        raise UsageError(f"{out} is there already; remove it to train it again, or choose another --out")
    settings = TrainingSettings(latent=latent, width=width, epochs=epochs, seed=seed)
    images = _images(data, split=split, limit=limit, size=size, seed=seed)
    checkpoint = out.with_name(out.name + ".part")
    identity = _identity(data, settings, images)
    trainer = Trainer(images, settings, _load_checkpoint(checkpoint, identity))
    began, error = time.monotonic(), _run_training(trainer, checkpoint, identity)
    prior = trainer.prior(f"{len(images)} images of {data}, {epochs} epochs, seed {seed}")
    save_prior(out, prior)
    checkpoint.unlink(missing_ok=True)
    result = {
        "prior": str(out),
        "about": prior.about,
        "image_shape": list(images.shape[1:]),
        "latent": latent,
        "rmse": error,
        "sha256": prior.fingerprint,
        "seconds": round(time.monotonic() - began, 1),
    }
    told = f"{printable(out)}: {printable(prior.about)}; error of the last steps {error}"
    typer.echo(json.dumps(result, indent=1) if as_json else told)


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
    from leakscope.matching.candidates import load_prior

    loaded = load_prior(prior)
    sized = loaded.at(loaded.image_shape or (3, size, size), like=torch.empty(0))
    with torch.no_grad():
        images = sized.decode(sized.sample(count, rng.generator(seed, "prior", "show")))
    typer.echo(f"{loaded!r}: {printable(loaded.about)}")
    for path in save_images(private_folder(out), images):
        typer.echo(f"image: {printable(path)}")


def _images(data: str, *, split: str | None, limit: int, size: int | None, seed: int) -> Tensor:
    from leakscope.cli.loading import name_options
    from leakscope.data.load import load, open_set
    from leakscope.errors import UsageError

    if limit < 1:
        raise UsageError(f"--limit must be ≥ 1, got {limit}")
    if split not in (None, *_SPLITS):
        raise UsageError(f"--split must be one of {', '.join(_SPLITS)}, got {split!r}")
    part = split or _usual_split(data)
    with name_options("split", "size"):
        count = min(limit, len(open_set(data, part, size=size, allow_code=True)))
        return load(data, split=part, count=count, seed=seed, size=size, allow_code=True).inputs


def _usual_split(data: str) -> str:
    """The training part; all of the user's own data that have none."""
    from leakscope.data import names
    from leakscope.data.load import open_set
    from leakscope.errors import MissingDataError

    if data in names():
        return "train"
    try:
        open_set(data, "train", allow_code=True)
    except MissingDataError:
        return "all"
    return "train"


def _identity(data: str, settings: TrainingSettings, images: Tensor) -> str:
    """What a checkpoint must agree on to be continued."""
    digest = hashlib.sha256(images.numpy().tobytes()).hexdigest()
    return json.dumps({"data": data, "images": digest, **asdict(settings)}, sort_keys=True)


def _load_checkpoint(checkpoint: Path, identity: str) -> dict[str, Tensor] | None:
    from leakscope.errors import UsageError
    from leakscope.files import read_tensors

    if not os.path.lexists(checkpoint):
        return None
    state, metadata = read_tensors(checkpoint)
    if metadata.get(_KEY) != identity:
        raise UsageError(
            f"{checkpoint} is the unfinished training of another prior (other data, options or seed); "
            "run the command it belongs to, remove it, or choose another --out"
        )
    return state


def _run_training(trainer: Trainer, checkpoint: Path, identity: str) -> float:
    """Take all steps, keeping the state on disk; return the mean error of the last ones."""
    from leakscope.progress import show_progress

    saved, recent = time.monotonic(), [0.0]
    with show_progress() as shown, shown.count("training the prior", trainer.total) as counter:
        try:
            for progress in trainer.run():
                recent = [*recent[-49:], progress.rmse] if progress.step > 1 else [progress.rmse]
                counter.update(progress.step, f"error {progress.rmse:.4f}")
                if time.monotonic() - saved > _SAVE_EVERY:
                    _save(trainer, checkpoint, identity)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            _save(trainer, checkpoint, identity)
            raise
    return round(sum(recent) / len(recent), 4)


def _save(trainer: Trainer, checkpoint: Path, identity: str) -> None:
    from leakscope.files import write_tensors

    write_tensors(checkpoint, trainer.state(), {_KEY: identity})
