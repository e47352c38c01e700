"""What is audited: builds the model and loads the private data that a spec names, and checks that they are the same.

Who may name code of the user's own was decided where the configuration was read; whatever is in a spec may run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import nn

from leakscope import data
from leakscope.audits.inputs import Inputs, changed
from leakscope.audits.own_code import hash_code
from leakscope.audits.read_files import hash_file
from leakscope.audits.specs import SubjectSpec
from leakscope.data.load import is_folder, open_set
from leakscope.data.own import is_own
from leakscope.data.source import Source
from leakscope.errors import LeakscopeError, MissingDataError
from leakscope.models import load_network
from leakscope.picture_size import height_width
from leakscope.tasks import Task
from leakscope.types import Batch
from leakscope.user_code import is_code

# Normalisation constants the reference networks know by the name of a data set.
_NORMALISED = ("cifar10", "cifar100", "imagenet", "mnist", "fashion-mnist", "words-plain", "words-scene", "iiit5k")
# With one, batch normalisation cannot train.
_LEAST_PER_CLIENT = 2


@dataclass(frozen=True)
class Subject:
    """A spec, and how to build what it stands for; `inputs` tell where its data and weights are."""

    spec: SubjectSpec
    inputs: Inputs = field(default_factory=Inputs, repr=False)

    @property
    def location(self) -> str:
        """Where the data are."""
        return self.inputs.locate(self.spec.data)

    @property
    def weights(self) -> str | None:
        """Where the weights are."""
        return self.spec.weights if self.inputs.weights is None else self.inputs.weights

    @property
    def _said(self) -> dict[str, str | None]:
        """What is declared of the inputs."""
        return {"bounds": self.spec.bounds, "one_hot": self.spec.one_hot}

    @cached_property
    def facts(self) -> data.SetInfo:
        """What is known of the data."""
        return data.info(self.location, **self._said, allow_code=True)

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
    def task(self) -> Task | None:
        """What a network for these data is for; None for what it is taken for by itself."""
        return self.facts.task

    @property
    def num_classes(self) -> int:
        """How many labels the data has."""
        return self.facts.num_classes

    def model(self) -> nn.Module:
        """Build the network, with its weights and in its mode, from what the plan was made for."""
        spec = self.spec
        # Before and after: a file may be replaced while it is read.
        self._check_weights()
        options: dict[str, Any] = dict(spec.options)
        own = is_code(spec.model)
        usual = None if own or self.location not in _NORMALISED else self.location
        network = load_network(
            spec.model,
            shape=self.input_shape,
            classes=spec.classes if own else spec.classes or self.num_classes,
            weights=self.weights,
            normalise=options.pop("normalise", usual) if spec.normalise is None else spec.normalise,
            seed=options.pop("seed", None),
            options=options,
            task=self.task,
            allow_code=True,
        )
        self._check_weights()
        if own and spec.code_hash is not None and self.hash_code(network) != spec.code_hash:
            raise changed(f"the source of {spec.model!r}, what it imports, or the weights it builds,")
        return network.train(spec.mode == "train")

    def hash_code(self, network: nn.Module) -> str | None:
        """Hash of the user's own code behind network and data; of the network as well, where such code built it."""
        return hash_code((self.spec.model, self.location), network=network if is_code(self.spec.model) else None)

    def _check_weights(self) -> None:
        if self.weights is not None and self.spec.weights_hash not in (None, hash_file(self.weights)):
            raise changed("the file of the weights")

    def open(self, split: str) -> Source:
        """One split of the data, without reading its pixels where the format allows it."""
        return open_set(
            self.location,
            split,
            size=self.spec.size,
            bounds=self.spec.bounds,
            one_hot=self.spec.one_hot,
            allow_code=True,
        )

    def private_examples(self) -> Batch:
        """The examples of all victims together."""
        return self._load(self.spec.split, count=self.spec.count)

    def victims(self, *, victims: int, batch_size: int) -> list[Batch]:
        """The private batches, one a victim."""
        everything = self.inputs.check(self.spec.data, "private", self.private_examples())
        return [
            Batch(everything.inputs[i : i + batch_size], everything.targets[i : i + batch_size], everything.bounds)
            for i in range(0, victims * batch_size, batch_size)
        ]

    def public_examples(self, most: int) -> Batch | None:
        """At most so many other examples of the same split, for null baselines; None where none can be read."""
        own = self.spec.count
        try:
            size = min(own + most, len(self.open(self.spec.split)))
            # One draw with one seed: the private examples are its beginning.
            drawn = self._load(self.spec.split, count=size)
        except LeakscopeError:
            # Pictures of other sizes, a broken file: no reason to lose the cell.
            return None
        return Batch(drawn.inputs[own:], drawn.targets[own:], drawn.bounds) if size > own else None

    def training_data(self, *, examples: int) -> tuple[Batch, Batch]:
        """Examples to train on and to test on, for the accuracy a defence costs."""
        own = is_own(self.location) or is_folder(self.location)
        train = self._first("train", examples)
        # Named sets are tested on whole; a folder of photographs may be larger than the memory.
        test = self._first("test", examples) if own else self._load("test")
        check = self.inputs.check
        return check(self.spec.data, "train", train), check(self.spec.data, "test", test)

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
        return data.load(
            self.location,
            split=split,
            seed=0,
            size=spec.size,
            bounds=spec.bounds,
            one_hot=spec.one_hot,
            allow_code=True,
            **which,
        )
