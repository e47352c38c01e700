"""What is audited: builds the model, loads the private data that a spec names, and hashes what a cell reads.

Who may name code of the user's own was decided where the configuration was read; whatever is in a spec may run.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from leakscope import data
from leakscope.audits.specs import SubjectSpec
from leakscope.data.load import is_folder, open_set
from leakscope.data.own import is_function, is_own
from leakscope.data.source import Source
from leakscope.errors import BadInputError, MissingDataError
from leakscope.models import load_network
from leakscope.picture_size import height_width
from leakscope.registry import parse_spec, split_chain
from leakscope.types import Batch
from leakscope.user_code import import_function, is_code

# Normalisation constants the reference networks know by the name of a data set.
_NORMALISED = ("cifar10", "cifar100", "imagenet", "mnist", "fashion-mnist")
# With one, batch normalisation cannot train.
_LEAST_PER_CLIENT = 2


@dataclass(frozen=True)
class Subject:
    """A spec, and how to build what it stands for."""

    spec: SubjectSpec

    @cached_property
    def facts(self) -> data.SetInfo:
        """What is known of the data."""
        return data.info(self.spec.data, bounds=self.spec.bounds, allow_code=True)

    @cached_property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input; channels, height and width of a picture."""
        size = self.spec.size or self.facts.image_size
        if self.facts.input_shape is not None and self.spec.size is None:
            return self.facts.input_shape
        if size is None:
            # A folder: its pictures may all have one size, and where they differ the reader says so.
            return tuple(self.private_examples().inputs.shape[1:])
        return (self.facts.channels, *height_width(size))

    @property
    def num_classes(self) -> int:
        """How many labels the data has."""
        return self.facts.num_classes

    def model(self) -> nn.Module:
        """Build the network, with its weights and in its mode."""
        spec = self.spec
        options: dict[str, Any] = dict(spec.options)
        own = is_code(spec.model)
        usual = None if own or spec.data not in _NORMALISED else spec.data
        network = load_network(
            spec.model,
            shape=self.input_shape,
            classes=spec.classes if own else spec.classes or self.num_classes,
            weights=spec.weights,
            normalise=options.pop("normalise", usual) if spec.normalise is None else spec.normalise,
            seed=options.pop("seed", None),
            options=options,
            allow_code=True,
        )
        return network.train(spec.mode == "train")

    def open(self, split: str) -> Source:
        """One split of the data, without reading its pixels where the format allows it."""
        return open_set(self.spec.data, split, size=self.spec.size, bounds=self.spec.bounds, allow_code=True)

    def private_examples(self) -> Batch:
        """The examples of all victims together."""
        return self._load(self.spec.split, count=self.spec.count)

    def victims(self, *, victims: int, batch_size: int) -> list[Batch]:
        """The private batches, one a victim."""
        everything = self.private_examples()
        if is_function(self.spec.data) and hash_batch(everything) != self.spec.data_hash:
            raise BadInputError(
                f"{self.spec.data!r} gives other examples in each process, so that results cannot be compared; draw "
                "random numbers in it from a fixed seed"
            )
        return [
            Batch(everything.inputs[i : i + batch_size], everything.targets[i : i + batch_size], everything.bounds)
            for i in range(0, victims * batch_size, batch_size)
        ]

    def training_data(self, *, examples: int) -> tuple[Batch, Batch]:
        """Examples to train on and to test on, for the accuracy a defence costs."""
        own = is_own(self.spec.data) or is_folder(self.spec.data)
        # Named sets are tested on whole; a folder of photographs may be larger than the memory.
        return self._first("train", examples), self._first("test", examples) if own else self._load("test")

    def why_not_trained(self, *, clients: int, outputs: int) -> str | None:
        """The reason why the data are not enough for a training, if there is one."""
        try:
            train, test = self.open("train"), self.open("test")
        except MissingDataError as error:
            return str(error)
        if len(train) < _LEAST_PER_CLIENT * clients:
            return f"{len(train)} training examples are too few for {clients} clients"
        largest = max(int(train.targets.max()), int(test.targets.max()))
        return f"label {largest} is beyond the {outputs} outputs of the network" if largest >= outputs else None

    def _first(self, split: str, most: int) -> Batch:
        return self._load(split, indices=range(min(most, len(self.open(split)))))

    def _load(self, split: str, **which: Any) -> Batch:
        spec = self.spec
        return data.load(spec.data, split=split, seed=0, size=spec.size, bounds=spec.bounds, allow_code=True, **which)


def hash_batch(batch: Batch) -> str:
    """Hash of every number of a batch."""
    digest = hashlib.sha256(batch.inputs.contiguous().numpy().tobytes())
    digest.update(batch.targets.numpy().tobytes())
    return digest.hexdigest()


def hash_code(names: Iterable[str], *, network: nn.Module | None = None) -> str | None:
    """Hash of the files that define the functions among `names`; None where there are none.

    Only the file of each function itself counts, not what it imports. `network` is what one of them built: its weights
    may come from a file that the function reads.
    """
    own = [name for name in names if is_code(name)]
    if not own:
        return None
    digest = hashlib.sha256()
    for name in own:
        digest.update(name.encode() + b"\0" + _source(name))
    for key, value in () if network is None else (*network.named_parameters(), *network.named_buffers()):
        digest.update(key.encode() + value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def hash_specs(*specs: str) -> str | None:
    """As `hash_code`, of attacks and defences with their options."""
    return hash_code(parse_spec(part)[0] for spec in specs for part in split_chain(spec))


def _source(name: str) -> bytes:
    function = import_function(name, allow_code=True, expected="a function of your own")
    home = function.__module__ if function.__module__ in sys.modules else name.partition(":")[0]
    file = sys.modules[home].__file__
    return b"" if file is None else Path(file).read_bytes()
