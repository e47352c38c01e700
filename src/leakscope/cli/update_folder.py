"""Update files that a user names, what is declared of all of them, and the true examples behind each."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from leakscope import data
from leakscope.cli.loading import load_any_update, load_labels, refuse_weights, refuse_zero
from leakscope.data.own import is_own
from leakscope.data.ranges import DeclaredRange
from leakscope.errors import BadInputError, UsageError
from leakscope.files import check_update
from leakscope.observation.observe import observe
from leakscope.observation.scenario import get_scenario
from leakscope.types import Batch, Bounds, Knowledge, LocalTraining, Observation, SharedUpdate

SUFFIXES = (".safetensors", ".npz", ".pt", ".pth")


def list_updates(path: Path, *, besides: tuple[Path | None, ...] = ()) -> list[Path]:
    """The update files that `path` names: itself, or those inside it by name; weights are no updates."""
    # A path that cannot be is no folder; the reader says what is wrong with it.
    if not os.path.isdir(path):
        return [path]
    known = {other.resolve() for other in besides if other is not None}
    found = sorted(
        entry
        for entry in path.iterdir()
        if entry.suffix.lower() in SUFFIXES
        and not entry.name.startswith(".")
        and entry.is_file()
        and entry.resolve() not in known
    )
    if not found:
        raise BadInputError(f"{path} holds no update; expected files that end in {', '.join(SUFFIXES)}")
    return found


@dataclass(frozen=True)
class Declaration:
    """What the command line says of every update: the network, how it was made, and what the server knows."""

    network: nn.Module
    shape: tuple[int, ...]
    scenario: str
    bounds: Bounds | None = (0.0, 1.0)
    before: Path | None = None
    kind: str | None = None
    local: LocalTraining | None = None
    redeclared: bool = False
    num_examples: int | None = None
    partial: bool = False
    labels: str | None = None

    def open(self, path: Path) -> SharedUpdate:
        """Read and check one file."""
        update = load_any_update(
            path,
            before=self.before,
            kind=self.kind,
            local=self.local,
            num_examples=self.num_examples,
            redeclared=self.redeclared,
        )
        update = check_update(update, self.network, partial=self.partial)
        refuse_weights(update, self.network, path)
        refuse_zero(update, path)
        return update

    def observe(self, update: SharedUpdate, truth: Batch | None) -> Observation:
        """What the server sees; of the truth no more than the labels, and those only where the scenario grants them."""
        targets = None
        if self.labels is not None:
            targets = load_labels(self.labels, self.network, update=update, shape=self.shape)
        elif truth is not None and Knowledge.LABELS in get_scenario(self.scenario).grants:
            targets = truth.targets
        seen = observe(self.network, update, scenario=self.scenario, input_shape=self.shape, targets=targets)
        # Tokens have no range.
        return seen if seen.vocabulary is not None else replace(seen, bounds=self.bounds)


class TrueExamples:
    """The private examples behind each update, where the user has them.

    A folder that holds an entry named like an update, `client1.npz` or the folder of pictures `client1` for
    `client1.safetensors`, is read by name. All other data hold the examples of all updates, in the order of the files.
    """

    def __init__(
        self,
        spec: str,
        paths: list[Path],
        *,
        shape: tuple[int, ...],
        said: DeclaredRange,
        vocabulary: int | None = None,
    ) -> None:
        """Look at what `spec` names; examples are read when they are asked for. With a vocabulary they are texts."""
        self._spec, self._shape, self._said, self._vocabulary = spec, shape, said, vocabulary
        self._single = len(paths) == 1
        self._named = {path: entry for path in paths if (entry := _entry_for(path, Path(spec))) is not None}
        self._all = None if self._named else self._load(spec)
        self._used = 0

    def of(self, path: Path, update: SharedUpdate) -> Batch | None:
        """The examples behind one update; None where the folder has no entry of its name."""
        if self._all is None:
            entry = self._named.get(path)
            return None if entry is None else self._checked(path, update, self._load(str(entry)))
        if self._single:
            return self._checked(path, update, self._all)
        if update.num_examples is None:
            raise UsageError(
                f"{path.name} does not say how many examples are behind it, so --truth {self._spec} cannot be shared "
                "out; give --num-examples, or a folder with one .npz file or folder of pictures per update, of its name"
            )
        first, self._used = self._used, self._used + update.num_examples
        if self._used > len(self._all):
            raise UsageError(f"--truth {self._spec} holds {len(self._all)} examples, fewer than the updates together")
        return Batch(self._all.inputs[first : self._used], self._all.targets[first : self._used], self._all.bounds)

    def _checked(self, path: Path, update: SharedUpdate, truth: Batch) -> Batch:
        if update.num_examples not in (None, len(truth)):
            raise UsageError(
                f"--truth gives {len(truth)} examples for {path.name}, which is an update of {update.num_examples}; "
                "give exactly those behind it"
            )
        return truth

    def _load(self, spec: str) -> Batch:
        if self._vocabulary is not None:
            return self._load_texts(spec, self._vocabulary)
        return load_examples(spec, shape=self._shape, said=self._said)

    @staticmethod
    def _load_texts(spec: str, vocabulary: int) -> Batch:
        if not is_own(spec):
            raise UsageError(
                f"--truth {spec} must hold texts, since the network takes whole numbers; give an .npz file with inputs "
                "and targets, or package.module:function"
            )
        return data.load_texts(spec, vocabulary=vocabulary, allow_code=True)


def load_examples(spec: str, *, shape: tuple[int, ...], said: DeclaredRange) -> Batch:
    """All examples that a user names: an .npz file, a folder of pictures, or a function."""
    own = is_own(spec)
    return data.load(
        spec,
        split="all",
        size=(shape[1], shape[2]) if len(shape) == 3 and not own else None,
        bounds=said.bounds if own else None,
        one_hot=said.one_hot if own else None,
        allow_code=True,
    )


def _entry_for(path: Path, folder: Path) -> Path | None:
    choices = (folder / f"{path.stem}.npz", folder / path.stem)
    return next((entry for entry in choices if os.path.isdir(folder) and os.path.exists(entry)), None)
