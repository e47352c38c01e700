"""From a configuration to cells: every combination once, with the hash of what it reads."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakscope import data
from leakscope.campaign.config import Config, Planned, PlannedAttack
from leakscope.campaign.stepped import length_of
from leakscope.campaign.subject import Subject, load_subject
from leakscope.errors import BadInputError, UsageError
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.sweep import Cell
from leakscope.types import Batch
from leakscope.version import __version__

NONE = "none"
# What the embedded sets hold is public, so their pictures may be shown.
EMBEDDED = ("digits", "faces")


@dataclass(frozen=True)
class Plan:
    """The cells of a campaign, attacks first; `left_out` are those a budget has no time for."""

    attacks: tuple[Cell, ...]
    utilities: tuple[Cell, ...]
    show_images: bool
    left_out: tuple[Cell, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells in the order they run."""
        return (*self.attacks, *self.utilities)


def make_plan(config: Config, *, show_images: bool | None = None) -> Plan:
    """Resolve every name once, so that a wrong one fails before any compute."""
    _check_names(config)
    choice = show_images if show_images is not None else config.show_images
    show = choice if choice is not None else all(name in EMBEDDED for name in config.data)
    subjects = [
        load_subject(_subject_spec(config, model, dataset))
        for model, dataset in itertools.product(config.models, config.data)
    ]
    attacks = [cell for subject in subjects for cell in _attack_cells(config, subject, show)]
    utilities = [cell for subject in subjects for cell in _utility_cells(config, subject)] if config.utility else []
    plan = Plan(tuple(attacks), tuple(utilities), show)
    return plan if config.planned is None else fitted(plan, config.planned)


def fitted(plan: Plan, planned: Planned) -> Plan:
    """The plan as a budget leaves it: fewer cells, shorter attacks, closed forms first."""
    absent = set(planned.left_out)
    kept = [_limited(cell, planned) for cell in plan.attacks if cell.label not in absent]
    return Plan(
        tuple(sorted(kept, key=lambda cell: length_of(attack_from_spec(str(cell.spec["attack"]))).steps is not None)),
        tuple(cell for cell in plan.utilities if cell.label not in absent),
        plan.show_images,
        tuple(cell for cell in plan.cells if cell.label in absent),
    )


def _limited(cell: Cell, planned: Planned) -> Cell:
    """A cell whose attack is changed says so in its spec; any other is the very cell of a run without budget."""
    length = planned.attacks.get(str(cell.spec["attack"]))
    if length is None or not is_changed(str(cell.spec["attack"]), length):
        return cell
    return Cell.of({**cell.spec, "limit": length.model_dump()}, code_version=__version__, label=cell.label)


def is_changed(spec: str, length: PlannedAttack) -> bool:
    """Whether an attack runs otherwise than its own settings say."""
    own = length_of(attack_from_spec(spec))
    return length.steps < length.of or (length.restarts is not None and length.restarts != own.restarts)


def _check_names(config: Config) -> None:
    for spec in config.attacks:
        attack_from_spec(spec)
    for spec in config.defences:
        defence_from_spec(spec)
    for axis in ("models", "data", "attacks", "defences", "scenarios", "seeds"):
        if not getattr(config, axis):
            raise UsageError(f"the configuration names no {axis}; expected at least one")
    for spec in config.planned.attacks if config.planned else ():
        if spec not in config.attacks:
            raise UsageError(f"planned.attacks names {spec!r}, which is not in attacks; remove `planned` to plan anew")


def _subject_spec(config: Config, model: str, dataset: str) -> dict[str, Any]:
    return {
        "model": model,
        "options": config.model_options.get(model, {}),
        "weights": config.weights,
        "weights_hash": None if config.weights is None else _file_hash(config.weights),
        "mode": config.mode,
        "data": dataset,
        "size": config.size,
        "split": config.split,
        "count": config.victims * config.batch_size,
        "data_hash": _batch_hash(config, dataset),
    }


def _attack_cells(config: Config, subject: Subject, show: bool) -> list[Cell]:
    cells = []
    axes = itertools.product(config.scenarios, config.seeds, config.defences, config.attacks)
    for scenario, seed, defence, attack in axes:
        for adaptive in (False, True) if config.adaptive and defence != NONE else (False,):
            spec = {
                "kind": "attack", "subject": subject.spec, "attack": attack, "defence": defence,
                "adaptive": adaptive, "scenario": scenario, "seed": seed, "victims": config.victims,
                "batch_size": config.batch_size, "lpips": config.lpips, "keep_images": show,
                "local": None if config.local is None else config.local.model_dump(),
            }  # fmt: skip
            knowing = " knowing it" if adaptive else ""
            label = f"{subject.name}: {attack} against {defence}{knowing}, {scenario}, seed {seed}"
            cells.append(Cell.of(spec, code_version=__version__, label=label))
    return cells


def _utility_cells(config: Config, subject: Subject) -> list[Cell]:
    assert config.utility is not None
    cells = []
    for defence in dict.fromkeys((NONE, *config.defences)):
        spec = {
            "kind": "utility", "subject": subject.spec, "defence": defence,
            "training": config.utility.model_dump(), "seed": config.seeds[0],
        }  # fmt: skip
        label = f"{subject.name}: accuracy under {defence}"
        cells.append(Cell.of(spec, code_version=__version__, label=label))
    return cells


def _batch_hash(config: Config, dataset: str) -> str:
    batch: Batch = data.load(
        dataset, split=config.split, count=config.victims * config.batch_size, seed=0, size=config.size
    )
    digest = hashlib.sha256(batch.inputs.contiguous().numpy().tobytes())
    digest.update(batch.targets.numpy().tobytes())
    return digest.hexdigest()


def _file_hash(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise BadInputError(f"cannot read the weights {path}: {error.strerror}; check the path") from error
