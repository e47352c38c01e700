"""What is audited: builds the model and loads the private data that a spec names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from leakscope import data, models
from leakscope.campaign.specs import SubjectSpec
from leakscope.errors import UsageError
from leakscope.types import Batch, height_width

# Normalisation constants the reference networks know by the name of a data set.
_NORMALISED = ("cifar10", "cifar100", "imagenet", "mnist", "fashion-mnist")


@dataclass(frozen=True)
class Subject:
    """A spec, and how to build what it stands for."""

    spec: SubjectSpec

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one picture."""
        facts = data.info(self.spec.data)
        size = self.spec.size or facts.image_size
        if size is None:
            raise UsageError(f"pictures of {self.spec.data!r} differ in size; set `size` in the configuration")
        return facts.channels, *height_width(size)

    @property
    def num_classes(self) -> int:
        """How many labels there are."""
        return data.info(self.spec.data).num_classes

    def model(self) -> nn.Module:
        """Build the network, with its weights and in its mode."""
        spec = self.spec
        channels, *size = self.input_shape
        options: dict[str, Any] = {"normalise": spec.data if spec.data in _NORMALISED else None, **spec.options}
        network = models.build(
            spec.model, num_classes=self.num_classes, in_channels=channels, image_size=(size[0], size[1]), **options
        )
        if spec.weights:
            models.load_weights(network, spec.weights)
        return network.train(spec.mode == "train")

    def victims(self, *, victims: int, batch_size: int) -> list[Batch]:
        """The private batches, one a victim."""
        spec = self.spec
        everything = data.load(spec.data, split=spec.split, count=victims * batch_size, seed=0, size=spec.size)
        return [
            Batch(everything.inputs[i : i + batch_size], everything.targets[i : i + batch_size])
            for i in range(0, victims * batch_size, batch_size)
        ]

    def training_data(self, *, examples: int) -> tuple[Batch, Batch]:
        """Examples to train on and to test on, for the accuracy a defence costs."""
        train, test = (data.load(self.spec.data, split=split, size=self.spec.size) for split in ("train", "test"))
        return Batch(train.inputs[:examples], train.targets[:examples]), test
