"""Who takes part: each a worker script, the settings it starts from, and what of them is tuned, value by value."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from picture_time.cases import Case
from versus_breaching import BREACHING_PYTHON

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Contestant:
    """One side of the contest.

    Attributes:
        name: as in the tables.
        script: its worker.
        length_option: what the worker calls the number of evaluations.
        settings: options of the worker before tuning.
        grids: values to try for an option, in the order in which options are tuned.
        local_grids: the same, only where clients train locally.
        residual_only: whether it takes part on residual networks alone.
    """

    name: str
    script: str
    length_option: str
    settings: Settings
    grids: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    local_grids: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    residual_only: bool = False

    @property
    def python(self) -> Path | str:
        """The interpreter of its environment."""
        return BREACHING_PYTHON if self.script == "breaching_worker.py" else sys.executable

    @property
    def is_installed(self) -> bool:
        """Whether its environment is here."""
        return Path(self.python).exists()

    def takes_part(self, case: Case) -> bool:
        """Whether it is measured in this case."""
        return case.is_residual or not self.residual_only

    def settings_before_tuning(self, case: Case) -> dict[str, Any]:
        """Where tuning begins in this case."""
        own = {name: values[0] for name, values in self.local_grids.items()} if case.is_local else {}
        return {**self.settings, **own}

    def order_of_tuning(self, case: Case) -> list[tuple[str, tuple[Any, ...]]]:
        """Options with their values; the first is tuned again at the end, when the others are known."""
        grids = [*(self.local_grids.items() if case.is_local else ()), *self.grids.items()]
        again = list(self.grids.items())[:1] if len(self.grids) > 1 else []
        return [*grids, *again]

    def command(self, settings: Settings, *, length: int) -> tuple[object, ...]:
        """Options of the worker for a run of `length` evaluations."""
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        # At most eighty snapshots a run: they cost little, and judge the picture often enough.
        return (self.length_option, length, "--every", max(1, length // 80), *options)


def holds_its_rate(settings: Settings) -> bool:
    """Whether a shorter run is the beginning of a longer one, so that one run serves every budget."""
    return settings.get("schedule") == "constant" or "schedule=held" in settings.get("attack", "")


def fingerprint(settings: Settings) -> str:
    """A short name of settings, for files: other settings, other file."""
    return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]


# All sides are told how the update was made; the search for another description begins when the picture is found.
_DIAGNOSIS = {"diagnosing": "no"}
_BREACHING_TV = (4e-5, 4e-4, 4e-3, 4e-2)
CONTESTANTS = {
    one.name: one
    for one in (
        Contestant(
            "plain",
            "plain_worker.py",
            "--steps",
            {"rate": 0.12, "tv": 2e-4, "start": "grey", "schedule": "linear"},
            # What was seen to matter most comes first.
            grids={
                "tv": (5e-5, 2e-4, 1e-3, 3e-3, 1e-2),
                "rate": (0.03, 0.06, 0.12, 0.25),
                "start": ("grey", "uniform"),
                "schedule": ("linear", "constant"),
            },
            local_grids={"replay": ("one-gradient", "simulate")},
        ),
        Contestant("breaching", "breaching_worker.py", "--iterations", {"attack": "invertinggradients"}),
        Contestant(
            "breaching, TV tuned",
            "breaching_worker.py",
            "--iterations",
            {"attack": "invertinggradients", "tv": 4e-4},
            grids={"tv": _BREACHING_TV},
        ),
        Contestant("leakscope", "leakscope_worker.py", "--steps", {"attack": "inverting-gradients", **_DIAGNOSIS}),
        Contestant(
            "leakscope, agic held",
            "leakscope_worker.py",
            "--steps",
            {"attack": "agic:schedule=held", **_DIAGNOSIS},
            residual_only=True,
        ),
    )
}


def chosen_contestants(names: list[str], case: Case) -> list[Contestant]:
    """Those of these names that take part, in the order of the tables; refused where an environment is missing."""
    chosen = [one for one in CONTESTANTS.values() if one.name in names and one.takes_part(case)]
    missing = [one.name for one in chosen if not one.is_installed]
    if missing:
        raise SystemExit(
            f"the environment of {' and '.join(missing)} is missing; create it with: sh benchmarks/peers/setup.sh, "
            "or leave it out with --contestants"
        )
    return chosen
