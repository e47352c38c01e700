"""The cells of one subject: attacks under defences, and trainings that tell what a defence costs."""

from __future__ import annotations

import itertools

from leakscope.audits.config import Config
from leakscope.audits.own_code import hash_specs
from leakscope.audits.read_files import hash_option_files
from leakscope.audits.specs import NONE, AttackCellSpec, AuditedClients, SubjectSpec, TrainingCellSpec
from leakscope.registry import attack_from_spec, defence_from_spec
from leakscope.software import software


def strong_attacks(config: Config, defence: str) -> list[str]:
    """Attacks that do better under a defence than most, where the configuration does not name them itself."""
    built = defence_from_spec(defence)
    named = built.strong_attacks if built is not None and config.adaptive else ()
    return [attack for attack in named if attack not in config.attacks]


def attack_cells(config: Config, subject: SubjectSpec, *, show: bool) -> list[AttackCellSpec]:
    """Every attack under every defence, scenario and seed; with `show` pictures are kept."""
    # Once for each: there may be thousands of seeds.
    attackers = {defence: _attackers(config, defence) for defence in config.defences}
    hashes = {
        (attack, defence): {"code_hash": hash_specs(attack, defence), "file_hashes": hash_option_files(attack, defence)}
        for defence, known in attackers.items()
        for attack in dict.fromkeys(attack for attack, _ in known)
    }
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
            prior_alone=not _borrows_prior(config, attack, defence=defence, adaptive=adaptive),
            software=software(),
            **hashes[attack, defence],
        )
        for scenario, seed, defence in itertools.product(config.scenarios, config.seeds, config.defences)
        for attack, adaptive in attackers[defence]
    ]


def _attackers(config: Config, defence: str) -> list[tuple[str, bool]]:
    """Each attack with whether it knows the defence; those strong under it only as one who knows."""
    knowing = (False, True) if config.adaptive and defence != NONE else (False,)
    named = [(attack, adaptive) for attack in config.attacks for adaptive in knowing]
    return [*named, *((attack, True) for attack in strong_attacks(config, defence))]


def _borrows_prior(config: Config, attack: str, *, defence: str, adaptive: bool) -> bool:
    """Whether the very same attack runs without the defence too, so that what its prior gives is measured there."""
    built, own = defence_from_spec(defence), attack_from_spec(attack)
    if built is None or NONE not in config.defences or attack not in config.attacks:
        return False
    return not adaptive or built.adapt(own) == own


def _audited(config: Config, defence: str) -> AuditedClients | None:
    """Told where it matters: to defences that prove something, and to all trainings that share changes."""
    if config.local is None:
        return None
    built = defence_from_spec(defence)
    proves = built is not None and built.guarantee(examples=1, batch_size=1, steps=1) is not None
    shares_changes = config.utility is not None and config.utility.share == "delta"
    return AuditedClients(local=config.local, batch_size=config.batch_size) if proves or shares_changes else None


def training_cells(config: Config, subject: SubjectSpec) -> list[TrainingCellSpec]:
    """A training under every defence, and one under none to compare with."""
    if config.utility is None:
        return []
    return [
        TrainingCellSpec(
            subject=subject,
            defence=defence,
            training=config.utility,
            audited=_audited(config, defence),
            seed=config.seeds[0],
            code_hash=hash_specs(defence),
            file_hashes=hash_option_files(defence),
            software=software(),
        )
        for defence in dict.fromkeys((NONE, *config.defences))
    ]
