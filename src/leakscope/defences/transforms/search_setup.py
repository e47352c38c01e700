"""From names to what policies are scored on: pictures for testing, and a network trained on a tenth of the others."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from leakscope.data import info, load
from leakscope.data.load import open_set
from leakscope.defences.transforms.privacy_score import Variant, check_variant
from leakscope.defences.transforms.score_bench import NetworkSource, ScoreBench, batch_positions, score_positions
from leakscope.defences.transforms.tiny_model import SHARE, TinyTraining, train_tiny
from leakscope.errors import BadInputError, UsageError
from leakscope.files import read_tensors, write_tensors
from leakscope.models import load_weights
from leakscope.types import Batch
from leakscope.user_code import is_code
from leakscope.version import __version__

MODEL_FILE = "model.safetensors"
_KEY = "leakscope-search-model"
# Steps done, steps in all, loss.
Watch = Callable[[int, int, float], None]


@dataclass(frozen=True)
class SearchSubject:
    """What a search is about.

    Attributes:
        data: named set, folder of pictures, .npz file or package.module:function.
        model: reference network, or package.module:function.
        images: pictures of the full S_pri.
        size: side to bring pictures to.
        normalise: constants of a reference network's first layer.
        weights: file with a trained network; trained here unless given.
        epochs: passes of that training.
        variant: how scores are computed.
        seed: of everything that is drawn.
    """

    data: str
    model: str
    images: int = 100
    size: int | None = None
    normalise: str | None = None
    weights: Path | None = None
    epochs: int = 2
    variant: Variant = "released"
    seed: int = 0

    def __post_init__(self) -> None:
        check_variant(self.variant)


def prepare(subject: SearchSubject, folder: Path, *, watch: Watch | None = None) -> ScoreBench:
    """Load the pictures, and train the network or read it from `folder`, where it is kept."""
    test = open_set(subject.data, "test", size=subject.size, allow_code=True)
    positions = score_positions(len(test), subject.images)
    pictures = _load(subject, positions)
    batches = tuple(_load(subject, chosen).inputs for chosen in batch_positions(test.targets))
    classes = None if is_code(subject.model) else info(subject.data, allow_code=True).num_classes
    network = NetworkSource(subject.model, tuple(pictures.inputs.shape[1:]), classes, subject.normalise)
    weights = _train(subject, network, folder, watch) if subject.weights is None else _read(subject, network)
    return ScoreBench(pictures, batches, network, weights, variant=subject.variant, seed=subject.seed)


def _load(subject: SearchSubject, positions: list[int]) -> Batch:
    found = load(subject.data, split="test", indices=positions, size=subject.size, allow_code=True)
    if found.inputs.ndim != 4 or found.bounds != (0.0, 1.0):
        raise UsageError(f"policies transform pictures in [0, 1], and {subject.data!r} holds other inputs")
    return found


def _read(subject: SearchSubject, network: NetworkSource) -> dict[str, Tensor]:
    model = network.build(subject.seed)
    if subject.weights is not None:
        load_weights(model, subject.weights)
    return _state(model.state_dict())


def _train(subject: SearchSubject, network: NetworkSource, folder: Path, watch: Watch | None) -> dict[str, Tensor]:
    """The trained network from `folder`; trained and put there when it is not."""
    training = TinyTraining(subject.epochs, seed=subject.seed)
    path, identity = folder / MODEL_FILE, _identity(subject, network)
    if path.exists() or path.is_symlink():
        state, metadata = read_tensors(path)
        if metadata.get(_KEY) != identity:
            raise UsageError(
                f"{path} is the network of another search (other data, network, options or seed); "
                "run the command it belongs to, or choose another --out"
            )
        return state
    model = network.build(subject.seed)
    if training.epochs:
        model = train_tiny(model, _tenth(subject), training, watch=watch)
    state = _state(model.state_dict())
    broken = [name for name, value in state.items() if value.is_floating_point() and not bool(value.isfinite().all())]
    if broken:
        raise BadInputError(
            f"the training of {subject.model!r} diverged ({broken[0]!r} is not finite); give trained --weights, "
            "--normalise, or --epochs 0 for the untrained network"
        )
    write_tensors(path, state, {_KEY: identity})
    return state


def _tenth(subject: SearchSubject) -> Batch:
    source = open_set(subject.data, "train", size=subject.size, allow_code=True)
    count = max(1, math.ceil(SHARE * len(source)))
    return load(subject.data, split="train", count=count, seed=subject.seed, size=subject.size, allow_code=True)


def _state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone().contiguous() for name, value in state.items()}


def _identity(subject: SearchSubject, network: NetworkSource) -> str:
    facts = {
        "data": subject.data,
        "size": subject.size,
        "model": subject.model,
        "shape": network.shape,
        "classes": network.classes,
        "normalise": subject.normalise,
        "epochs": subject.epochs,
        "seed": subject.seed,
        "version": __version__,
    }
    return json.dumps(facts, sort_keys=True)
