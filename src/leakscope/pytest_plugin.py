"""A pytest fixture, `assert_leakage_below`: a test that fails when an update gives its examples away.

pytest loads this file wherever leakscope is installed, so it imports nothing else before the fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch import nn

    from leakscope.attack import Attack
    from leakscope.results import AuditResult
    from leakscope.types import Batch


class LeakageError(AssertionError):
    """A private example came back above the limit."""


class LeakageInconclusiveError(AssertionError):
    """Nothing came back above the limit, and that means nothing: an attack gave no evidence."""


@pytest.fixture
def assert_leakage_below() -> Callable[..., list[AuditResult]]:
    """The function of the same name, for tests that would rather not import it."""
    return check_leakage_below


def check_leakage_below(
    model: nn.Module,
    batch: Batch | Sequence[Batch],
    *,
    psnr: float,
    attack: str | Attack | Sequence[str | Attack] = "inverting-gradients",
    **options: Any,
) -> list[AuditResult]:
    """Attack what a client of `model` would share, and fail where an example comes back above `psnr` decibels.

    Args:
        model: The network that clients train.
        batch: Private examples, or several batches for several clients.
        psnr: Most decibels that an example may come back with.
        attack: Attack, or several, by spec or value.
        **options: As for `leakscope.audit`: defence, adaptive, local, scenario, seed, ...

    Returns:
        What each attack came to, the strongest that a defence names included.

    Raises:
        LeakageError: An example came back above `psnr`, whatever else happened.
        LeakageInconclusiveError: None did, but an attack failed, did not finish or could not be run.
    """
    __tracebackhide__ = True
    import math

    from leakscope.errors import UsageError

    if not math.isfinite(psnr):
        raise UsageError(f"psnr must be a finite number of decibels, got {psnr}")
    attacks = [attack] if isinstance(attack, str) or not isinstance(attack, Sequence) else list(attack)
    if not attacks:
        raise UsageError("attack names no attack; expected at least one")
    found, refused = _attack_all(model, batch, attacks, options)
    leaks = [_describe(one) for one in found if _highest(one) > psnr]
    if leaks:
        raise LeakageError(f"leakage above {psnr:g} dB: {'; '.join(leaks)}")
    doubtful = [*refused, *(_describe(one) for one in found if not _is_evidence(one))]
    if doubtful:
        raise LeakageInconclusiveError(
            f"inconclusive, so nothing is known about {psnr:g} dB: {'; '.join(doubtful)}; "
            "give the attack more steps, or choose another"
        )
    return found


def _attack_all(
    model: nn.Module, batch: Batch | Sequence[Batch], attacks: list[str | Attack], options: dict[str, Any]
) -> tuple[list[AuditResult], list[str]]:
    from leakscope.audits.audit import audit
    from leakscope.errors import KnowledgeError, UnsuitableError

    found: list[AuditResult] = []
    refused: list[str] = []
    for one in attacks:
        try:
            result = audit(model, batch, one, **options)
        except (KnowledgeError, UnsuitableError) as refusal:
            refused.append(f"refused: {refusal}")
            continue
        found += [result, *result.also]
    return found, refused


def _highest(result: AuditResult) -> float:
    values = [] if result.scores is None else [value for value in result.scores.psnr.tolist() if value == value]
    return max(values, default=float("-inf"))


def _is_evidence(result: AuditResult) -> bool:
    from leakscope.results import Status

    has_scores = result.scores is not None and bool((result.scores.psnr == result.scores.psnr).all())
    return result.status is Status.OK and has_scores


def _describe(result: AuditResult) -> str:
    highest = _highest(result)
    score = "no score" if highest == float("-inf") else f"{highest:.1f} dB"
    knowing = " knowing it" if result.adaptive else ""
    return (
        f"{result.attack} against {result.defence}{knowing} reached {score} "
        f"(scenario {result.scenario}, seed {result.seed}, status {result.status})"
    )
