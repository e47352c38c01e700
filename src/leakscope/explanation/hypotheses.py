"""Descriptions of an update other than the declared one, each with what speaks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from leakscope.explanation.description import count_steps, scale_known
from leakscope.explanation.fit import UpdateMatch
from leakscope.explanation.verdict import is_poor
from leakscope.types import LocalTraining, Observation


@dataclass(frozen=True)
class Hypothesis:
    """Another description of an update.

    Attributes:
        name: the description, as what comes behind "explained so much".
        remedy: what to declare.
        evidence: what speaks for it besides the share.
        other: the update under this description; None where it cannot be replayed.
        explained: the share it explains; None where that was not measured.
        certain: whether a mark of the update alone decides.
        leaves_bounds: whether a result under it must leave the declared bounds to speak for it.
        by_direction: whether it leaves the length of the update open.
        leaves: of what the declared description leaves unexplained, it must leave less than this share to be believed.
        tells_rate: whether the best length of its replay is rate × steps.
    """

    name: str
    remedy: str
    evidence: str = ""
    other: Observation | None = None
    explained: float | None = None
    certain: bool = False
    leaves_bounds: tuple[float, float] | None = None
    by_direction: bool = False
    leaves: float = 0.6
    tells_rate: bool = False

    def measured(self, match: UpdateMatch, inputs: Tensor) -> Hypothesis:
        """The same with what examples explain under it; nothing where they do not leave the bounds as they should."""
        evidence = self.evidence
        if self.leaves_bounds is not None:
            outside = share_outside(inputs, self.leaves_bounds)
            if outside < _OUTSIDE:
                return replace(self, explained=None)
            evidence = f"{100 * outside:.0f} % of the values leave the declared bounds"
        name = f"with rate × steps of about {match.scale:.2g}" if self.tells_rate else self.name
        share = match.explained if self.by_direction else match.as_declared
        return replace(self, name=name, explained=max(share, self.explained or 0.0), evidence=evidence)


# The share of values outside the declared bounds that an outside normalisation makes; half of them are usual.
_OUTSIDE = 0.2
# Results that explain an update have the length of it within a few percent.
_OTHER_LENGTH = 1.5
_SAME_LENGTH = 0.05
_MOMENTA = (0.9, 0.5, 0.8, 0.95, 0.99)


@dataclass(frozen=True)
class Case:
    """A result under the declared description, and how well it does.

    Attributes:
        seen: the update as declared.
        inputs: the result's inputs.
        targets: and targets.
        match: how the replayed update compares.
        unrelated: the most that inputs drawn without the update explain.
        attainable: what even the truth may explain where the order of the steps is not known.
    """

    seen: Observation
    inputs: Tensor
    targets: Tensor
    match: UpdateMatch
    unrelated: float
    attainable: float = 1.0

    @property
    def is_poor(self) -> bool:
        """Whether less is explained as declared than a result must to be evidence."""
        return is_poor(self.declared, self.unrelated, attainable=self.attainable)

    @property
    def declared(self) -> float:
        """The share explained as declared."""
        return self.match.as_declared if scale_known(self.seen) else self.match.explained

    @property
    def described(self) -> str:
        """The declared description in words."""
        local = self.seen.local
        if self.seen.update.kind == "gradient":
            return "gradient"
        if local is None:
            return "delta, rate unknown"
        amount = f"{local.epochs} epochs" if local.steps is None else f"{local.steps} steps"
        momentum = f", momentum {local.momentum:g}" if local.momentum else ""
        decay = f", weight decay {local.weight_decay:g}" if local.weight_decay else ""
        name = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}[local.optimiser]
        return f"{name}, rate {local.lr:g}, {amount}{momentum}{decay}"

    def at_length(self, factor: float) -> float:
        """The share explained where the replayed update is `factor` times as long: e(s) = cos²(2 s/s* − (s/s*)²)."""
        ratio = factor / self.match.scale
        return self.match.explained * (2 * ratio - ratio**2)

    def with_local(self, local: LocalTraining) -> Observation:
        """The update as that of another local training."""
        return replace(self.seen, local=local, update=replace(self.seen.update, local=local))


def share_outside(inputs: Tensor, bounds: tuple[float, float]) -> float:
    """The share of values that lie clearly outside `bounds`."""
    low, high = bounds
    slack = 0.05 * (high - low)
    return float(((inputs < low - slack) | (inputs > high + slack)).double().mean())


def lengths(case: Case) -> Iterator[Hypothesis]:
    """What the length of the update says, against that of a result that explains its direction."""
    factor = case.match.scale
    if not scale_known(case.seen) or factor <= 0 or 1 / _OTHER_LENGTH < factor < _OTHER_LENGTH:
        return
    local, count = case.seen.local, len(case.inputs)
    together = count if local is None else min(local.batch_size, count)
    if together > 1 and _is_near(factor, together):
        yield Hypothesis(
            f"as a sum over {together} examples",
            f"divide it by {together}, or declare the mean",
            f"it is {factor:.3g} times as long",
            explained=case.at_length(together),
        )
    if local is None:
        yield Hypothesis(
            f"at {factor:.3g} times the length",
            "it was summed, weighted or clipped: declare the update before that",
            explained=case.match.explained,
        )
        return
    steps = count_steps(case.seen, count)
    yield from _momenta(case, local, steps, factor)
    total = local.total_rate(steps)
    yield Hypothesis(
        f"with rate × steps {factor * total:.3g} instead of {total:.3g}",
        f"declare the rate and the steps of the client, {factor:.3g} times as much together",
        other=case.with_local(replace(local, lr=local.lr * factor)),
        explained=case.match.explained,
    )


def _momenta(case: Case, local: LocalTraining, steps: int, factor: float) -> Iterator[Hypothesis]:
    """Momentum makes a training longer by a factor that its steps tell."""
    if local.momentum or local.optimiser != "sgd" or steps < 2:
        return
    for momentum in _MOMENTA:
        other = replace(local, momentum=momentum)
        if not _is_near(factor, other.total_rate(steps) / local.total_rate(steps)):
            continue
        yield Hypothesis(
            f"with momentum {momentum:g}",
            f"declare momentum={momentum:g}",
            f"or rate × steps {factor:.3g} times the declared",
            other=case.with_local(other),
            explained=case.match.explained,
        )


def _is_near(value: float, expected: float) -> bool:
    return abs(value / expected - 1) < _SAME_LENGTH
