"""Cells that cost the same: one of each kind is probed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from leakscope import data
from leakscope.attack import Attack
from leakscope.campaign.plan import NONE, Plan
from leakscope.campaign.stepped import Length, length_of
from leakscope.campaign.subject import Subject
from leakscope.data.load import open_set
from leakscope.registry import attack_from_spec, defence_from_spec, parse_spec, split_chain
from leakscope.sweep import Cell
from leakscope.sweep.cells import canonical_json
from leakscope.version import __version__


@dataclass(frozen=True)
class Kind:
    """Cells of the same network, input shape, attack, local training and scenario; `probe` stands for them."""

    probe: Cell
    length: Length
    cells: list[Cell] = field(default_factory=list)

    @property
    def groups(self) -> int:
        """Runs that one cell holds: victims times restarts."""
        spec: Any = self.probe.spec
        return spec.get("victims", 1) * self.length.restarts


def kinds_of(plan: Plan) -> list[Kind]:
    """Group the cells of a plan, in the order in which they run."""
    found: dict[str, Kind] = {}
    facts = _Facts()
    for cell in plan.cells:
        spec: Any = cell.spec
        probe = _attack_probe(spec, facts) if spec["kind"] == "attack" else _utility_probe(spec, facts)
        key = canonical_json({name: value for name, value in probe.items() if name not in ("subject", "defence")})
        if key not in found:
            length = length_of(attack_as_run(probe)) if spec["kind"] == "attack" else Length(spec["training"]["rounds"])
            found[key] = Kind(Cell.of(probe, code_version=__version__, label=cell.label), length)
        found[key].cells.append(cell)
    return list(found.values())


def attack_as_run(spec: Mapping[str, Any]) -> Attack:
    """The attack of a cell, adapted to the defence where the cell's attacker knows it."""
    attack, defence = attack_from_spec(spec["attack"]), defence_from_spec(spec["defence"])
    return defence.adapt(attack) if spec["adaptive"] and defence is not None else attack


class _Facts:
    """What the cells of one subject have in common, looked up once: a folder of pictures is slow to count."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def hardened(self, subject: dict[str, Any], spec: str) -> bool:
        """Whether a defence changes the network, and with it the cost of every attack on it."""
        return self._once(["hardened", subject, spec], lambda: _is_hardened(subject, spec))

    def shape(self, subject: dict[str, Any]) -> dict[str, Any]:
        """What the cost depends on: the network and the shape of its input, not which pictures are in it."""
        return self._once(["shape", subject], lambda: _shape(subject))

    def sizes(self, subject: dict[str, Any]) -> dict[str, int]:
        """How many examples there are to train on and to test on."""
        return self._once(["sizes", subject], lambda: _sizes(subject))

    def _once(self, name: list[Any], find: Callable[[], Any]) -> Any:
        key = canonical_json(name)
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]


def _attack_probe(spec: dict[str, Any], facts: _Facts) -> dict[str, Any]:
    matters = spec["adaptive"] or facts.hardened(spec["subject"], spec["defence"])
    kept = ("kind", "subject", "attack", "adaptive", "scenario", "victims", "batch_size", "lpips", "local")
    return {
        **{name: spec[name] for name in kept},
        **facts.shape(spec["subject"]),
        "defence": spec["defence"] if matters else NONE,
        # Without options: how much is pruned does not change what an attack costs.
        "defence_names": [parse_spec(part)[0] for part in split_chain(spec["defence"])] if matters else [],
    }


def _utility_probe(spec: dict[str, Any], facts: _Facts) -> dict[str, Any]:
    subject = spec["subject"]
    return {
        "kind": "utility", "subject": subject, "defence": spec["defence"], "defence_names": [spec["defence"]],
        "training": spec["training"], "sizes": facts.sizes(subject), **facts.shape(subject),
    }  # fmt: skip


def _is_hardened(subject: dict[str, Any], spec: str) -> bool:
    defence = defence_from_spec(spec)
    model = Subject(subject).model()
    return defence is not None and defence.harden(model) is not model


def _sizes(subject: dict[str, Any]) -> dict[str, int]:
    return {split: len(open_set(subject["data"], split, size=subject["size"])) for split in ("train", "test")}


def _shape(subject: dict[str, Any]) -> dict[str, Any]:
    facts = data.info(subject["data"])
    side = subject["size"] or facts.image_size
    network = {name: subject[name] for name in ("model", "options", "weights", "mode")}
    return {"network": network, "shape": [facts.channels, side, side], "classes": facts.num_classes}
