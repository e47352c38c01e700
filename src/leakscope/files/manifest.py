"""What leakscope notes beside the tensors of an update, inside the same file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from leakscope.files.opening import Source
from leakscope.types import LocalTraining, SharedUpdate
from leakscope.version import __version__

KEY = "leakscope"
_Count = Annotated[int, Field(ge=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Local(_Strict):
    """`LocalTraining` as stored."""

    lr: float = Field(gt=0, allow_inf_nan=False)
    steps: _Count
    batch_size: _Count


class Manifest(_Strict):
    """Everything of a `SharedUpdate` but its numbers; the lists keep the order of the tensors."""

    format: Literal[1]
    kind: Literal["gradient", "delta"]
    num_examples: _Count | None
    local: Local | None
    tensors: list[str]
    buffers: list[str]
    leakscope: str

    def local_training(self) -> LocalTraining | None:
        """Return the stored local training."""
        return None if self.local is None else LocalTraining(**self.local.model_dump())


def describe(update: SharedUpdate) -> Manifest:
    """Return the manifest of `update`."""
    local = update.local
    stored = None if local is None else Local(lr=local.lr, steps=local.steps, batch_size=local.batch_size)
    return Manifest(
        format=1,
        kind=update.kind,
        num_examples=update.num_examples,
        local=stored,
        tensors=list(update.tensors),
        buffers=list(update.buffers),
        leakscope=__version__,
    )


def parse(source: Source, text: str, names: set[str]) -> Manifest:
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
