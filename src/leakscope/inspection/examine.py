"""All detectors on one received model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from leakscope.inspection.architecture import AgreedArchitecture
from leakscope.inspection.balance import BalancedRows
from leakscope.inspection.change import RoundChange
from leakscope.inspection.copies import CopyKernels
from leakscope.inspection.detector import Detector
from leakscope.inspection.dominance import GradientDominance
from leakscope.inspection.finding import LARGEST, Finding, Measured, Severity
from leakscope.inspection.fingerprint import SameForAll, fingerprint, structure_hash
from leakscope.inspection.firing import FiringRates
from leakscope.inspection.fully_connected import FullyConnectedLayers
from leakscope.inspection.head import ClassifierHead
from leakscope.inspection.imprint import ImprintLayers
from leakscope.inspection.pairs import RowPairs
from leakscope.inspection.received import Model, Received, receive
from leakscope.inspection.zeros import ZeroWeights
from leakscope.tasks import Task
from leakscope.types import Batch

DETECTORS: tuple[Detector, ...] = (
    AgreedArchitecture(),
    FullyConnectedLayers(),
    ZeroWeights(),
    CopyKernels(),
    RowPairs(),
    ImprintLayers(),
    BalancedRows(),
    ClassifierHead(),
    FiringRates(),
    GradientDominance(),
    RoundChange(),
    SameForAll(),
)
NOT_DETECTED = (
    "SEER-class servers, which train a network to single out one example by a secret of their own: they pass every "
    "check here, and no check of weights or gradients is known to find them",
    "constructions other than those the detectors name, and those under noise so strong that their weights look like "
    "honest ones (see the frontier between stealth and theft in the documentation)",
    "what an honest server learns from your update: that is measured by an attack, not by looking at the model",
)


@dataclass(frozen=True)
class Inspection:
    """Everything an inspection saw.

    Attributes:
        findings: figures above their limits, critical ones first.
        measured: every figure by detector, also of those that found nothing.
        limits: limit by detector and figure.
        skipped: detectors that did not look, and what they lacked.
        fingerprint: hash of names, types, shapes and values, to compare with other clients.
        structure: hash of names, types and shapes.
        not_detected: what no finding does not rule out.
    """

    findings: tuple[Finding, ...]
    measured: Mapping[str, tuple[Measured, ...]]
    limits: Mapping[str, Mapping[str, float]]
    skipped: Mapping[str, str]
    fingerprint: str
    structure: str
    not_detected: tuple[str, ...] = NOT_DETECTED

    @property
    def suspicion(self) -> float:
        """The largest figure over its limit; above 1 is a finding."""
        ratios = [
            one.value / limit if (limit := self.limits[name][one.figure]) > 0 else one.value * LARGEST
            for name, several in self.measured.items()
            for one in several
        ]
        return min(LARGEST, max(ratios, default=0.0))


def examine(
    model: Model,
    *,
    reference: Model | None = None,
    batch: Batch | None = None,
    previous: Model | None = None,
    task: Task | None = None,
    pruned: float = 0.0,
    hashes: Sequence[str] = (),
    detectors: Sequence[Detector] = DETECTORS,
) -> Inspection:
    """Look at a received model with every detector that has what it needs; arguments as for `inspect`."""
    received = receive(
        model, reference=reference, batch=batch, previous=previous, task=task, pruned=pruned, hashes=hashes
    )
    return examine_received(received, detectors)


def examine_received(received: Received, detectors: Sequence[Detector] = DETECTORS) -> Inspection:
    """As `examine`, of what was put together already."""
    skipped = {one.name: lacking for one in detectors if (lacking := one.lacks(received))}
    looking = [one for one in detectors if one.name not in skipped]
    measured = {one.name: tuple(one.measure(received)) for one in looking}
    findings = [found for one in looking for found in one.judge(list(measured[one.name]))]
    return Inspection(
        findings=tuple(sorted(findings, key=lambda one: one.severity is not Severity.CRITICAL)),
        measured=measured,
        limits={one.name: dict(one.thresholds) for one in detectors},
        skipped=skipped,
        fingerprint=fingerprint(received.tensors),
        structure=structure_hash(received.tensors),
    )


def inspect(
    model: Model,
    *,
    reference: Model | None = None,
    batch: Batch | None = None,
    previous: Model | None = None,
    task: Task | None = None,
    pruned: float = 0.0,
    hashes: Sequence[str] = (),
) -> list[Finding]:
    """Whether a received model was crafted to steal: its findings, none of which is a clean bill of health.

    Args:
        model: the network as received, or its tensors by name. It is not modified.
        reference: the network that was agreed on, or its tensors; only its form matters.
        batch: the client's own examples: without them firing rates, gradients and losses are not looked at.
        previous: the model of the last round.
        task: what the network is for; classification unless given.
        pruned: share of weights that the federation has agreed to set to zero.
        hashes: fingerprints that other clients got of this round's model.

    Returns:
        Findings, critical ones first; empty where no listed construction was found. `Inspection.not_detected` says
        what that does not rule out.

    Raises:
        BadInputError: weights that are not finite, or examples that the network does not take.

    Example:
        >>> from leakscope.models import build
        >>> inspect(build("lenet5", in_channels=1, image_size=28))
        []
    """
    return list(
        examine(
            model, reference=reference, batch=batch, previous=previous, task=task, pruned=pruned, hashes=hashes
        ).findings
    )


def check_tensors(
    tensors: Mapping[str, Tensor], reference: Model | None = None, *, previous: Model | None = None, pruned: float = 0.0
) -> list[Finding]:
    """As `inspect`, of tensors by name, as a federation's messages carry them; what needs examples is not looked at."""
    return inspect(tensors, reference=reference, previous=previous, pruned=pruned)
