"""What a cell is told: which subject, which attack, which defence, under which conditions.

A worker gets the same as plain JSON; the hash of that JSON is the cell's key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from leakscope.audits.config import AccuracyTraining
from leakscope.picture_size import PictureSize
from leakscope.runner import Cell
from leakscope.settings import PlannedAttack, Settings
from leakscope.text import printable
from leakscope.types import LocalTraining
from leakscope.version import __version__

NONE = "none"
# Left out of the JSON at their defaults: a spec of version 0.1 reads and writes the same.
_SINCE_0_1 = ("rounds", "limit", "classes", "normalise", "bounds", "code_hash", "prior_alone")
_SINCE_0_1 += ("one_hot", "data_version", "software", "file_hashes", "audited")
_TRAINING_SINCE_0_1 = ("seeds", "how", "share")


class SubjectSpec(Settings):
    """A model and the private data behind its updates, with hashes of what is read from files.

    `data` and `weights` are public names: where they are is in `Inputs`. `data_version` stands for the content of the
    data, as in `DataRecord`. `code_hash` covers the source of functions of the user's own, and the weights that such a
    function built.
    """

    model: str
    options: dict[str, Any]
    weights: str | None
    weights_hash: str | None
    mode: Literal["eval", "train"]
    data: str
    size: PictureSize | None
    split: str
    count: int
    data_version: int = 1
    classes: int | None = None
    normalise: str | None = None
    bounds: str | None = None
    one_hot: str | None = None
    code_hash: str | None = None

    @property
    def name(self) -> str:
        """Short name for people."""
        return printable(f"{self.model} on {self.data}")


def _without_news(spec: Settings, found: dict[str, Any], news: Sequence[str] = _SINCE_0_1) -> dict[str, Any]:
    """What version 0.1 would have written, where nothing newer is used."""
    usual = {name: field.default for name, field in type(spec).model_fields.items() if name in news}
    return {name: value for name, value in found.items() if name not in usual or getattr(spec, name) != usual[name]}


class _CellSpec(Settings):
    subject: SubjectSpec
    defence: str
    seed: int
    # Of an attack or a defence of the user's own.
    code_hash: str | None = None
    # Of files that options of the attack and the defence name.
    file_hashes: tuple[str, ...] = ()
    # What computes the cell, as `leakscope.software` tells it.
    software: dict[str, str] = Field(default={})

    @property
    def label(self) -> str:
        """What progress and reports call the cell."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for the worker and for the key."""
        found = self.model_dump(mode="json")
        return _without_news(self, found) | {"subject": _without_news(self.subject, found["subject"])}

    @cached_property
    def cell(self) -> Cell:
        """The cell as the runner knows it."""
        return Cell.of(self.to_json(), code_version=__version__, label=self.label)

    @property
    def key(self) -> str:
        """Hash of what the cell is told and of the version that runs it."""
        return self.cell.key


class AttackCellSpec(_CellSpec):
    """One attack against one defence.

    `rounds` is None for as many as the attack needs; `limit` shortens the attack; `keep_images` stores what it rebuilt.
    Without `prior_alone` the cell takes that baseline from the same attack without the defence.
    """

    kind: Literal["attack"] = "attack"
    attack: str
    adaptive: bool
    scenario: str
    victims: int
    batch_size: int
    lpips: bool
    keep_images: bool
    local: LocalTraining | None
    rounds: int | None = None
    limit: PlannedAttack | None = None
    prior_alone: bool = True

    @property
    def label(self) -> str:
        """What progress and reports call the cell."""
        knowing = " knowing it" if self.adaptive else ""
        against = f"{self.attack} against {self.defence}{knowing}"
        return printable(f"{self.subject.name}: {against}, {self.scenario}, seed {self.seed}")

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for the worker and for the key."""
        found = super().to_json()
        return {**found, "local": None if self.local is None else self.local.settings()}


class AuditedClients(Settings):
    """How the clients of the audit train before they share, and on how many examples each."""

    local: LocalTraining
    batch_size: int


class TrainingCellSpec(_CellSpec):
    """A short training under one defence, for the accuracy it costs.

    `audited` is given where the clients of the audit train locally and it matters: what is proven is proven of them,
    and a training that shares changes trains as they do.
    """

    kind: Literal["utility"] = "utility"
    training: AccuracyTraining
    audited: AuditedClients | None = None

    @property
    def label(self) -> str:
        """What progress and reports call the cell."""
        return printable(f"{self.subject.name}: accuracy under {self.defence}")

    @property
    def seeds(self) -> tuple[int, ...]:
        """One training each."""
        return self.training.seeds or (self.seed,)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for the worker and for the key."""
        found = super().to_json()
        if self.audited is not None:
            found["audited"] = {"local": self.audited.local.settings(), "batch_size": self.audited.batch_size}
        return {**found, "training": _without_news(self.training, found["training"], _TRAINING_SINCE_0_1)}


CellSpec = AttackCellSpec | TrainingCellSpec
_ANY_CELL: TypeAdapter[CellSpec] = TypeAdapter(Annotated[CellSpec, Field(discriminator="kind")])


def parse_cell_spec(spec: Mapping[str, Any]) -> CellSpec:
    """The typed spec of a cell that came as JSON."""
    return _ANY_CELL.validate_python(dict(spec))
