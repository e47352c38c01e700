"""From a configuration to cells: every combination once, with the hash of what it reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from leakscope.audits.config import RESIDUAL_ATTACKS, Config, Planned, PlannedAttack
from leakscope.audits.grid import attack_cells, strong_attacks, training_cells
from leakscope.audits.inputs import DataRecord, Inputs, name_data
from leakscope.audits.read_files import hash_file
from leakscope.audits.specs import AttackCellSpec, CellSpec, SubjectSpec, TrainingCellSpec
from leakscope.audits.subject import Subject
from leakscope.errors import BadInputError, UsageError
from leakscope.networks import freeze, is_residual_with_stored_statistics, settle
from leakscope.observation.checks import check_labels
from leakscope.registry import attack_from_spec, defence_from_spec

# What the embedded sets hold is public, so their pictures may be shown.
EMBEDDED = ("digits", "faces", "sample-photos", "words-plain", "words-scene")


@dataclass(frozen=True)
class Plan:
    """The cells of an audit, attacks first; `left_out` are those a budget has no time for.

    `untrained` says of which subjects no accuracy is measured, and why. `inputs` are what workers need and outputs must
    not hold. `specs` are the attacks as the configuration names them, or as they were chosen for its networks.
    """

    attacks: tuple[AttackCellSpec, ...]
    trainings: tuple[TrainingCellSpec, ...]
    show_images: bool
    left_out: tuple[CellSpec, ...] = ()
    untrained: tuple[str, ...] = ()
    inputs: Inputs = field(default_factory=Inputs, repr=False)
    specs: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[CellSpec, ...]:
        """All cells in the order they run."""
        return (*self.attacks, *self.trainings)


def make_plan(config: Config, *, show_images: bool | None = None, record: DataRecord | None = None) -> Plan:
    """Resolve every name once, so that a wrong one fails before any compute.

    `record` is what the run folder knows of its data; without one, all data are seen for the first time.
    """
    _check_names(config)
    choice = show_images if show_images is not None else config.show_images
    show = choice if choice is not None else all(name in EMBEDDED for name in config.data)
    names = name_data(config.data)
    inputs = Inputs(record or DataRecord.fresh(), {name: place for place, name in names.items()}, {}, config.weights)
    found = [_check_subject(config, model, names[place], inputs) for model in config.models for place in config.data]
    config = _choose_attacks(config, found)
    if choice:
        _check_pictures(one.subject for one in found)
    inputs = _read_data(config, found, inputs)
    subjects = [_number_data(one, inputs) for one in found]
    attacks = [cell for one in subjects for cell in attack_cells(config, one.subject.spec, show=show)]
    trainings = [cell for one in subjects if one.trainable for cell in training_cells(config, one.subject.spec)]
    untrained = [f"Accuracy of {one.subject.spec.name}: {one.untrained}." for one in subjects if one.untrained]
    plan = Plan(tuple(attacks), tuple(trainings), show, untrained=tuple(untrained), inputs=inputs, specs=config.attacks)
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
        plan.inputs,
        plan.specs,
    )


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


@dataclass(frozen=True)
class _Checked:
    """A subject that can be audited, and why no accuracy is measured on it where none is."""

    subject: Subject
    trainable: bool
    untrained: str | None
    is_residual: bool = False


def _choose_attacks(config: Config, found: Iterable[_Checked]) -> Config:
    """The configuration with the attacks of residual networks, where nobody named attacks and a network is one.

    Reference networks are known by name before torch is there; one of the user's own has to be looked at.
    """
    if "attacks" in config.model_fields_set or not any(one.is_residual for one in found):
        return config
    return config.model_copy(update={"attacks": RESIDUAL_ATTACKS})


def _check_subject(config: Config, model: str, dataset: str, inputs: Inputs) -> _Checked:
    """The subject with the hash of its code; all of it is built once, so that what does not fit fails at once."""
    subject = Subject(_subject(config, model, dataset), inputs)
    examples = subject.private_examples()
    network = subject.model()
    task = subject.task
    outputs = settle(freeze(network)[0], subject.input_shape, task=task).outputs
    try:
        (check_labels if task is None else task.check_targets)(examples.targets, outputs)
    except BadInputError as error:
        raise UsageError(f"{subject.spec.name} cannot be audited: {error}") from error
    spec = subject.spec.model_copy(update={"code_hash": subject.hash_code(network)})
    why = None if config.utility is None else subject.why_not_trained(clients=config.utility.shards, outputs=outputs)
    why = None if why is None else inputs.redact(why)
    residual = is_residual_with_stored_statistics(network, subject.input_shape)
    return _Checked(Subject(spec, inputs), config.utility is not None and why is None, why, residual)


def _read_data(config: Config, checked: Iterable[_Checked], inputs: Inputs) -> Inputs:
    """The inputs with a hash of every example that a cell will read, which workers compare with what they read."""
    hashes: dict[str, dict[str, str]] = {}
    for one in checked:
        parts = hashes.setdefault(one.subject.spec.data, {})
        if "private" not in parts:
            parts["private"] = inputs.record.hash(one.subject.private_examples())
        if one.trainable and config.utility is not None and "train" not in parts:
            both = one.subject.training_data(examples=config.utility.examples)
            parts |= {part: inputs.record.hash(batch) for part, batch in zip(("train", "test"), both, strict=True)}
    return replace(inputs, hashes=hashes)


def _number_data(one: _Checked, inputs: Inputs) -> _Checked:
    spec = one.subject.spec
    version = inputs.record.number(spec.data, inputs.join(spec.data))[0]
    return replace(one, subject=Subject(spec.model_copy(update={"data_version": version}), inputs))


def _check_pictures(subjects: Iterable[Subject]) -> None:
    for subject in subjects:
        if len(subject.input_shape) != 3 or subject.facts.bounds is None:
            raise UsageError(
                f"{subject.spec.data!r} holds no pictures, but inputs of shape {list(subject.input_shape)} with bounds "
                f"{subject.facts.bounds}, so --show-images has no effect; drop it"
            )


def _subject(config: Config, model: str, dataset: str) -> SubjectSpec:
    return SubjectSpec(
        model=model,
        options=config.model_options.get(model, {}),
        weights=None if config.weights is None else Path(config.weights).name,
        weights_hash=None if config.weights is None else hash_file(config.weights),
        mode=config.mode,
        data=dataset,
        size=config.size,
        split=config.split,
        count=config.victims * config.batch_size,
        classes=config.classes,
        normalise=config.normalise,
        bounds=config.bounds,
        one_hot=config.one_hot,
    )
