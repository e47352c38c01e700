"""What leakscope notes beside the tensors of an update, inside the same file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_serializer, model_validator

from leakscope.counts import MOST_EXAMPLES, MOST_STEPS
from leakscope.files.opening import ByteSource
from leakscope.types import LocalTraining, SharedUpdate
from leakscope.version import __version__

KEY = "leakscope"
_Steps = Annotated[int, Field(ge=1, le=MOST_STEPS)]
_Examples = Annotated[int, Field(ge=1, le=MOST_EXAMPLES)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Local(_Strict):
    """`LocalTraining` as stored: rate, amount and batch size, and of the rest what is not at its default."""

    lr: float = Field(gt=0, allow_inf_nan=False)
    steps: _Steps | None = None
    batch_size: _Examples = 1
    epochs: _Steps | None = None
    optimiser: str = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    shuffle: bool = False
    drop_last: bool = False
    schedule: str = "constant"
    decay_every: _Steps | None = None
    decay_factor: float = 0.1
    final_fraction: float = 0.0

    @model_validator(mode="after")
    def _can_train(self) -> Local:
        self.training()
        return self

    @model_serializer
    def _settings(self) -> dict[str, Any]:
        return self.training().settings()

    def training(self) -> LocalTraining:
        """The value that is stored; it checks how its settings go together."""
        return LocalTraining(**dict(self))


class Manifest(_Strict):
    """Everything of a `SharedUpdate` but its numbers; the lists keep the order of the tensors."""

    format: Literal[1]
    kind: Literal["gradient", "delta"]
    num_examples: _Examples | None
    local: Local | None
    tensors: list[str]
    buffers: list[str]
    leakscope: str

    def local_training(self) -> LocalTraining | None:
        """Return the stored local training."""
        return None if self.local is None else self.local.training()


def describe(update: SharedUpdate) -> Manifest:
    """Return the manifest of `update`."""
    local = update.local
    stored = None if local is None else Local(**local.settings())
    return Manifest(
        format=1,
        kind=update.kind,
        num_examples=update.num_examples,
        local=stored,
        tensors=list(update.tensors),
        buffers=list(update.buffers),
        leakscope=__version__,
    )


def parse(source: ByteSource, text: str, names: set[str]) -> Manifest:
    """Read a manifest and check it against the tensors the file holds."""
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise source.error(
            f"the leakscope manifest is not valid at {field!r}: {first['msg']}; "
            "write it again with save_update, or update leakscope if a newer one wrote it"
        ) from None
    listed = manifest.tensors + manifest.buffers
    if len(listed) != len(names) or set(listed) != names:
        raise source.error("the manifest lists other tensors than the file holds; write it again with save_update")
    return manifest
