"""From a configuration to cells: every combination once, with the hash of what it reads."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from leakscope.audits.config import Config, Planned, PlannedAttack
from leakscope.audits.specs import NONE, AttackCellSpec, CellSpec, SubjectSpec, TrainingCellSpec
from leakscope.audits.subject import Subject, hash_batch, hash_code, hash_specs
from leakscope.errors import BadInputError, UsageError
from leakscope.networks import freeze, settle
from leakscope.observation.checks import check_labels
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.user_code import is_code

# What the embedded sets hold is public, so their pictures may be shown.
EMBEDDED = ("digits", "faces")


@dataclass(frozen=True)
class Plan:
    """The cells of an audit, attacks first; `left_out` are those a budget has no time for.

    `untrained` says of which subjects no accuracy is measured, and why.
    """

    attacks: tuple[AttackCellSpec, ...]
    trainings: tuple[TrainingCellSpec, ...]
    show_images: bool
    left_out: tuple[CellSpec, ...] = ()
    untrained: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[CellSpec, ...]:
        """All cells in the order they run."""
        return (*self.attacks, *self.trainings)


def make_plan(config: Config, *, show_images: bool | None = None) -> Plan:
    """Resolve every name once, so that a wrong one fails before any compute."""
    _check_names(config)
    choice = show_images if show_images is not None else config.show_images
    show = choice if choice is not None else all(name in EMBEDDED for name in config.data)
    checked = [_check_subject(config, model, name) for model, name in itertools.product(config.models, config.data)]
    if choice:
        _check_pictures(subject for subject, _ in checked)
    attacks = [cell for subject, _ in checked for cell in _attack_cells(config, subject.spec, show)]
    reasons = {subject.spec.name: _why_untrained(config, subject, outputs) for subject, outputs in checked}
    trained = [subject.spec for subject, _ in checked if reasons[subject.spec.name] is None]
    trainings = [cell for subject in trained for cell in _training_cells(config, subject)]
    untrained = [f"Accuracy of {name}: {reason}." for name, reason in reasons.items() if reason is not None]
    plan = Plan(tuple(attacks), tuple(trainings), show, untrained=tuple(untrained))
    return plan if config.planned is None else fit_plan(plan, config.planned)


def fit_plan(plan: Plan, planned: Planned) -> Plan:
    """The plan as a budget leaves it: fewer cells, shorter attacks, closed forms first."""
    absent = set(planned.left_out)
    kept = [_limit(cell, planned) for cell in plan.attacks if cell.label not in absent]
    return Plan(
        tuple(sorted(kept, key=lambda cell: attack_from_spec(cell.attack).effort.steps is not None)),
        tuple(cell for cell in plan.trainings if cell.label not in absent),
        plan.show_images,
        tuple(cell for cell in plan.cells if cell.label in absent),
        plan.untrained,
    )


def strong_attacks(config: Config, defence: str) -> list[str]:
    """Attacks that do better under a defence than most, where the configuration does not name them itself."""
    built = defence_from_spec(defence)
    named = built.strong_attacks if built is not None and config.adaptive else ()
    return [attack for attack in named if attack not in config.attacks]


def _limit(cell: AttackCellSpec, planned: Planned) -> AttackCellSpec:
    """A cell whose attack is changed says so in its spec; any other is the very cell of a run without budget."""
    length = planned.attacks.get(cell.attack)
    if length is None or not _is_changed(cell.attack, length):
        return cell
    # Not `model_copy`: the key of the full cell would come along.
    return AttackCellSpec.model_validate(cell.model_dump() | {"limit": length})


def _is_changed(spec: str, length: PlannedAttack) -> bool:
    own = attack_from_spec(spec).effort
    return length.steps < length.of or (length.restarts is not None and length.restarts != own.restarts)


def _check_names(config: Config) -> None:
    for spec in config.attacks:
        _check_rounds(spec, config.rounds)
    for spec in config.defences:
        defence_from_spec(spec)
    for axis in ("models", "data", "attacks", "defences", "scenarios", "seeds"):
        if not getattr(config, axis):
            raise UsageError(f"the configuration names no {axis}; expected at least one")
    known = {*config.attacks, *(spec for defence in config.defences for spec in strong_attacks(config, defence))}
    for spec in config.planned.attacks if config.planned else ():
        if spec not in known:
            raise UsageError(f"planned.attacks names {spec!r}, which is not in attacks; remove `planned` to plan again")


def _check_rounds(spec: str, rounds: int | None) -> None:
    needed = attack_from_spec(spec).rounds
    if rounds is not None and rounds < needed:
        raise UsageError(f"attack {spec!r} needs {needed} rounds, got {rounds}; leave rounds out, or give more")


def _check_subject(config: Config, model: str, dataset: str) -> tuple[Subject, int]:
    """The subject with its hashes, and how many outputs its network has.

    All of it is built and read once here, so that what does not fit fails before any compute.
    """
    subject = Subject(_subject(config, model, dataset))
    examples = subject.private_examples()
    network = subject.model()
    outputs = settle(freeze(network)[0], subject.input_shape).outputs
    try:
        check_labels(examples.targets, outputs)
    except BadInputError as error:
        raise UsageError(f"{subject.spec.name} cannot be audited: {error}") from error
    code = hash_code((model, dataset), network=network if is_code(model) else None)
    hashes = {"data_hash": hash_batch(examples), "code_hash": code}
    return Subject(subject.spec.model_copy(update=hashes)), outputs


def _check_pictures(subjects: Iterable[Subject]) -> None:
    for subject in subjects:
        if len(subject.input_shape) != 3 or subject.facts.bounds is None:
            raise UsageError(
                f"{subject.spec.data!r} holds no pictures, but inputs of shape {list(subject.input_shape)} with bounds "
                f"{subject.facts.bounds}, so --show-images has no effect; drop it"
            )


def _why_untrained(config: Config, subject: Subject, outputs: int) -> str | None:
    return None if config.utility is None else subject.why_not_trained(clients=config.utility.clients, outputs=outputs)


def _subject(config: Config, model: str, dataset: str) -> SubjectSpec:
    return SubjectSpec(
        model=model,
        options=config.model_options.get(model, {}),
        weights=config.weights,
        weights_hash=None if config.weights is None else _file_hash(config.weights),
        mode=config.mode,
        data=dataset,
        size=config.size,
        split=config.split,
        count=config.victims * config.batch_size,
        data_hash="",
        classes=config.classes,
        normalise=config.normalise,
        bounds=config.bounds,
    )


def _attack_cells(config: Config, subject: SubjectSpec, show: bool) -> list[AttackCellSpec]:
    return [
        AttackCellSpec(
            subject=subject,
            attack=attack,
            defence=defence,
            adaptive=adaptive,
            scenario=scenario,
            seed=seed,
            victims=config.victims,
            batch_size=config.batch_size,
            lpips=config.lpips,
            keep_images=show,
            local=config.local,
            rounds=config.rounds,
            code_hash=hash_specs(attack, defence),
        )
        for scenario, seed, defence in itertools.product(config.scenarios, config.seeds, config.defences)
        for attack, adaptive in _attackers(config, defence)
    ]


def _attackers(config: Config, defence: str) -> list[tuple[str, bool]]:
    """Each attack with whether it knows the defence; those strong under it only as one who knows."""
    knowing = (False, True) if config.adaptive and defence != NONE else (False,)
    named = [(attack, adaptive) for attack in config.attacks for adaptive in knowing]
    return [*named, *((attack, True) for attack in strong_attacks(config, defence))]


def _training_cells(config: Config, subject: SubjectSpec) -> list[TrainingCellSpec]:
    if config.utility is None:
        return []
    return [
        TrainingCellSpec(
            subject=subject,
            defence=defence,
            training=config.utility,
            seed=config.seeds[0],
            code_hash=hash_specs(defence),
        )
        for defence in dict.fromkeys((NONE, *config.defences))
    ]


def _file_hash(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise BadInputError(f"cannot read the weights {path}: {error.strerror}; check the path") from error
