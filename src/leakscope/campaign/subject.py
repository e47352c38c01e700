"""What is audited: a model and the private data behind its updates, from a plain spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from leakscope import data, models
from leakscope.errors import UsageError
from leakscope.types import Batch

# Normalisation constants the reference networks know by the name of a data set.
_NORMALISED = ("cifar10", "cifar100", "imagenet", "mnist", "fashion-mnist")


@dataclass(frozen=True)
class Subject:
    """A plain spec, and how to build what it stands for."""

    spec: dict[str, Any]

    @property
    def name(self) -> str:
        """Short name for people."""
        return f"{self.spec['model']} on {self.spec['data']}"

    def model(self) -> nn.Module:
        """Build the network, with its weights and in its mode."""
        facts = data.info(self.spec["data"])
        side = self.spec["size"] or facts.image_size
        if side is None:
            raise UsageError(f"pictures of {self.spec['data']!r} differ in size; set `size` in the configuration")
        options: dict[str, Any] = {"normalise": self.spec["data"] if self.spec["data"] in _NORMALISED else None}
        options.update(self.spec["options"])
        network = models.build(
            self.spec["model"], num_classes=facts.num_classes, in_channels=facts.channels, image_size=side, **options
        )
        if self.spec["weights"]:
            models.load_weights(network, self.spec["weights"])
        return network.train(self.spec["mode"] == "train")

    def victims(self, *, victims: int, batch_size: int) -> list[Batch]:
        """The private batches, one a victim."""
        everything = data.load(
            self.spec["data"], split=self.spec["split"], count=victims * batch_size, seed=0, size=self.spec["size"]
        )
        return [
            Batch(everything.inputs[i : i + batch_size], everything.targets[i : i + batch_size])
            for i in range(0, victims * batch_size, batch_size)
        ]

    def training_data(self, *, examples: int) -> tuple[Batch, Batch]:
        """Examples to train on and to test on, for the accuracy a defence costs."""
        train, test = (data.load(self.spec["data"], split=split, size=self.spec["size"]) for split in ("train", "test"))
        return Batch(train.inputs[:examples], train.targets[:examples]), test


def load_subject(spec: Mapping[str, Any]) -> Subject:
    """Check the spec by building its model once."""
    subject = Subject(dict(spec))
    subject.model()
    return subject
