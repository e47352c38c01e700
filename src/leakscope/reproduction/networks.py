"""Networks of cells, in a worker: built, loaded or trained; a trained one is kept beside the cells."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leakscope import data
from leakscope.data.sets import search_roots
from leakscope.errors import BadInputError, MissingDataError
from leakscope.files import private_folder, read_tensors, write_tensors
from leakscope.models import load_network
from leakscope.reproduction.trainings import train
from leakscope.runner import NamedCall
from leakscope.runner.cells import canonical_json
from leakscope.software import software
from leakscope.types import Batch
from leakscope.user_code import is_code

# Constants of a reference network's first layer, where the recipe does not name others.
_NORMALISED = ("cifar10", "cifar100", "mnist", "fashion-mnist")
_KEPT: ContextVar[Path | None] = ContextVar("kept_networks", default=None)


@contextmanager
def keep_networks(folder: Path | None) -> Iterator[None]:
    """Keep networks that are trained inside the block in `folder`, and find those that are there."""
    before = _KEPT.set(folder)
    try:
        yield
    finally:
        _KEPT.reset(before)


def build_network(spec: Mapping[str, Any], name: str, example: Batch) -> nn.Module:
    """The network that `network(…)` describes, for the data set `name`, of which `example` is a batch."""
    trained = spec.get("trained")
    model = _build(spec, name, tuple(example.inputs.shape[1:]))
    if trained is not None:
        model.load_state_dict(_train_once(spec, model, trained))
    return model.train(spec["mode"] == "train")


def _build(spec: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> nn.Module:
    options = dict(spec.get("options", {}))
    facts = data.info(name)
    classes = options.pop("classes", facts.num_classes)
    if is_code(spec["name"]):
        made: Any = NamedCall(spec["name"]).find()
        return made(seed=spec["seed"], channels=shape[0], side=shape[-1], classes=classes, **options)
    weights = options.pop("weights", None)
    return load_network(
        spec["name"],
        shape=shape,
        classes=classes,
        weights=None if weights is None else find_weights(weights),
        normalise=options.pop("normalise", name if name in _NORMALISED else None),
        seed=None if weights is not None else spec["seed"],
        options=options,
        task=facts.task,
    )


def find_weights(name: str) -> Path:
    """A file of weights below the data folder."""
    for root in search_roots(None):
        if (path := Path(root) / name).is_file():
            return path
    raise MissingDataError(f"the weights {name} are not on this machine; put them below the folder of LEAKSCOPE_DATA")


def _train_once(spec: Mapping[str, Any], model: nn.Module, how: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The trained weights, from an earlier cell where it left them; one thread, so that they are the same bytes."""
    key = hashlib.sha256(canonical_json({"network": spec, "software": software()}).encode()).hexdigest()
    cache = _KEPT.get()
    path = None if cache is None else cache / f"{key}.safetensors"
    if path is not None and path.is_file():
        try:
            return read_tensors(path)[0]
        except BadInputError:
            # Half a file of a killed process: computed again and replaced.
            os.unlink(path)
    state = {name: value.detach() for name, value in train(model, how).model.state_dict().items()}
    if path is not None:
        private_folder(path.parent)
        write_tensors(path, state)
    return state
