"""P1–P3, P6, P30: damaged files of every kind end in a value or one typed error, soon, and run nothing."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import resource
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from mutations import MUTATIONS
from readable_files import Kind, readable_files

from leakscope.errors import LeakscopeError

# Far above what any of them takes, on a busy machine, too; a file that never ends does not stay below.
_SECONDS = 20.0
_MEMORY = 300 * 2**20


class _Payload:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.canary),)


def _hostile(canary: Path) -> list[bytes]:
    """Pieces that would run, if anything of a file ever ran."""
    return [
        pickle.dumps(_Payload(canary), protocol=2),
        f"c: !!python/object/apply:os.mkdir ['{canary}']\n".encode(),
        f"\nm: !!python/object/new:os.mkdir ['{canary}']\n".encode(),
    ]


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _outcome(kind: Kind, folder: Path, content: bytes) -> str:
    """`value`, or the name of the one typed error; anything else escapes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / kind.name
    path.write_bytes(content)
    try:
        kind.read(path)
    except LeakscopeError as error:
        return type(error).__name__ if 0 < len(str(error)) < 25_000 else "a message without end"
    return "value"


def _turns(kinds: dict[str, Kind]) -> Iterator[str]:
    """All kinds in turn; the slow ones only every fifth time."""
    for turn in itertools.count():
        yield from (name for name, kind in kinds.items() if not kind.is_slow or turn % 5 == 0)


def _run(tmp_path: Path, count: int, seed: int) -> dict[str, Counter[str]]:
    kinds = readable_files(tmp_path)
    canary, dice = tmp_path / "canary", random.Random(seed)
    others = [kind.content for kind in kinds.values()] + 3 * _hostile(canary)
    for kind in kinds.values():
        assert _outcome(kind, tmp_path / "one", kind.content) == "value"
    before, found, slowest = _peak(), {name: Counter[str]() for name in kinds}, (0.0, "")
    for index, name in enumerate(itertools.islice(_turns(kinds), count)):
        content = kinds[name].content
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            content = dice.choice(MUTATIONS)(content, dice, others) or b"\0"
        began = time.monotonic()
        try:
            found[name][_outcome(kinds[name], tmp_path / "one", content)] += 1
        except Exception as error:
            raise AssertionError(f"{name}, file {index} of seed {seed}: {error!r}; begins {content[:200]!r}") from error
        slowest = max(slowest, (time.monotonic() - began, name))
    _print(found, slowest, _peak() - before)
    assert not canary.exists()
    assert slowest[0] < _SECONDS
    assert not any(outcomes["a message without end"] for outcomes in found.values())
    assert _peak() - before < _MEMORY
    return found


def _print(found: dict[str, Counter[str]], slowest: tuple[float, str], memory: int) -> None:
    for name, outcomes in found.items():
        said = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
        print(f"{name:16} {sum(outcomes.values()):6} files: {said}")
    total = sum((outcomes for outcomes in found.values()), Counter())
    print(f"{'all':16} {sum(total.values()):6} files: {dict(total)}")
    print(f"slowest file {slowest[0]:.2f} s ({slowest[1]}), memory grew by {memory / 2**20:.0f} MB")


@pytest.mark.usefixtures("no_child")
def test_some_mutated_files_of_all_kinds(tmp_path: Path) -> None:
    found = _run(tmp_path, 400, seed=0)
    assert sum(sum(outcomes.values()) for outcomes in found.values()) == 400


@pytest.mark.slow
@pytest.mark.usefixtures("no_child")
@pytest.mark.timeout(7200)
def test_twenty_thousand_mutated_files_of_all_kinds(tmp_path: Path) -> None:
    found = _run(tmp_path, 20_000, seed=1)
    assert sum(sum(outcomes.values()) for outcomes in found.values()) == 20_000
    for name, outcomes in found.items():
        assert sum(number for outcome, number in outcomes.items() if outcome != "value") > 0, name


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_mutated_pickles_in_the_child_too(tmp_path: Path) -> None:
    kind = readable_files(tmp_path)["pt"]
    canary, dice = tmp_path / "canary", random.Random(2)
    found: Counter[str] = Counter()
    for _ in range(60):
        content = dice.choice(MUTATIONS)(kind.content, dice, _hostile(canary)) or b"\0"
        found[_outcome(kind, tmp_path / "one", content)] += 1
    print(f"pt, read by torch in a child: {dict(found)}")
    assert not canary.exists()
    assert sum(found.values()) == 60
