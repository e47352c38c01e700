"""Axis 3: how the attacker imagines the client computed its update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from leakscope.client import check_order, measure_step_bytes, replay_gradient, replay_local
from leakscope.counts import MOST_SIMULATED_STEPS
from leakscope.errors import UnsuitableError
from leakscope.files.opening import budget_bytes
from leakscope.matching.replays.simulation import Simulation
from leakscope.tensors import scale
from leakscope.types import Knowledge, LocalTraining, Observation, Tensors

# What so many take is not worth measuring.
_FEW_STEPS = 50


class Replay(Protocol):
    """Predicts the update a candidate would have caused."""

    def needs(self, seen: Observation) -> frozenset[Knowledge]:
        """What must be known to replay this update."""
        ...

    def target(self, seen: Observation) -> dict[str, Tensor]:
        """The observed update in the units of `predict`."""
        ...

    def local(self, seen: Observation) -> LocalTraining | None:
        """The local training to simulate, or None when one gradient is compared."""
        ...

    def describe(self, seen: Observation) -> tuple[str, ...]:
        """What a reader of the result must know of it."""
        ...


def simulate(replay: Replay, seen: Observation, examples: int) -> Simulation | None:
    """The local steps that `replay` simulates on so many examples; None when one gradient is compared.

    They are in the order of the client's steps where that is granted, else in the order of the examples. What is
    compared is the mean gradient they stand for: a delta at a rate of 1e-4 would otherwise be so small that an
    optimiser takes any match for an exact one.
    """
    local = replay.local(seen)
    if local is None:
        return None
    order = seen.order or local.order(examples)
    check_order(order, examples)
    return Simulation(local, order, _to_gradient(seen, local))


def predict(
    replay: Replay,
    seen: Observation,
    parameters: Tensors,
    inputs: Tensor,
    targets: Tensor,
    *,
    create_graph: bool = True,
) -> dict[str, Tensor]:
    """The update that `inputs` and `targets` would have caused, differentiable in both.

    Local training is the client's own loop.
    """
    simulation = simulate(replay, seen, len(inputs))
    if simulation is None:
        return replay_gradient(
            seen.model,
            parameters,
            inputs,
            targets,
            loss=seen.loss,
            task=seen.task,
            create_graph=create_graph,
            given=seen.given,
        )
    order = simulation.order

    def run_steps(steps: int) -> dict[str, Tensor]:
        return replay_local(
            seen.model,
            parameters,
            inputs,
            targets,
            local=simulation.local,
            loss=seen.loss,
            task=seen.task,
            create_graph=create_graph,
            order=order[:steps],
            given=seen.given,
        )

    if create_graph and _FEW_STEPS < len(order) <= MOST_SIMULATED_STEPS:
        _check_memory(len(order), measure_step_bytes(run_steps))
    return scale(run_steps(len(order)), simulation.factor)


def _check_memory(steps: int, each: int) -> None:
    """Refuse a simulation whose derivative needs more than the budget; by the budget, not by what is free just now."""
    if steps * each > (budget := budget_bytes()):
        raise UnsuitableError(
            f"{steps:,} local steps of this network need {steps * each:,} bytes for each prediction, the budget is "
            f"{budget:,}; allow more with --budget-mb, or use an attack that compares one gradient, such as agic"
        )


@dataclass(frozen=True)
class OneGradient:
    """Compare with one gradient of all examples.

    A delta is divided by −R, where R is rate × steps for plain SGD and `LocalTraining.total_rate` in
    general. Where the rate is unknown, or the client used Adam, only its direction means anything, and a
    scale-free distance must be used: see `scale_known`.
    """

    def needs(self, seen: Observation) -> frozenset[Knowledge]:
        """Nothing beyond model and update."""
        return frozenset()

    def target(self, seen: Observation) -> dict[str, Tensor]:
        """The shared gradient, or the mean gradient a delta stands for."""
        if seen.update.kind == "gradient":
            return dict(seen.update.tensors)
        return scale(seen.update.tensors, gradient_factor(seen))

    def local(self, seen: Observation) -> LocalTraining | None:
        """Never simulates."""
        return None

    def describe(self, seen: Observation) -> tuple[str, ...]:
        """Nothing: its name says it."""
        return ()


@dataclass(frozen=True)
class LocalSteps:
    """Simulate the client's local steps; a shared gradient is compared as it is."""

    def needs(self, seen: Observation) -> frozenset[Knowledge]:
        """Rate and steps, for a delta."""
        if seen.update.kind == "gradient":
            return frozenset()
        return frozenset({Knowledge.LEARNING_RATE, Knowledge.LOCAL_STEPS})

    def target(self, seen: Observation) -> dict[str, Tensor]:
        """The shared gradient, or the mean gradient a delta stands for."""
        return OneGradient().target(seen)

    def local(self, seen: Observation) -> LocalTraining | None:
        """What the client did, as far as it is granted."""
        return seen.local if seen.update.kind == "delta" else None

    def describe(self, seen: Observation) -> tuple[str, ...]:
        """Nothing: its name says it."""
        return ()


@dataclass(frozen=True)
class AsKnown:
    """Simulate local steps where that helps and is possible, else compare with one gradient of all examples.

    A simulation needs rate and steps, and which label belongs to which step: with the labels in a
    guessed order it matches the update worse than the one-gradient approximation does.
    """

    def needs(self, seen: Observation) -> frozenset[Knowledge]:
        """Nothing: it uses what there is."""
        return frozenset()

    def target(self, seen: Observation) -> dict[str, Tensor]:
        """As `LocalSteps` or `OneGradient`, whichever applies."""
        return self._choose(seen).target(seen)

    def local(self, seen: Observation) -> LocalTraining | None:
        """As `LocalSteps` or `OneGradient`, whichever applies."""
        return self._choose(seen).local(seen)

    def describe(self, seen: Observation) -> tuple[str, ...]:
        """Where steps are known and too many."""
        steps = count_local_steps(seen)
        if steps is None or steps <= MOST_SIMULATED_STEPS:
            return ()
        return (f"{steps:,} local steps are too many to simulate: compared with one gradient of all examples",)

    @staticmethod
    def _choose(seen: Observation) -> LocalSteps | OneGradient:
        certain = seen.local is not None and not _order_matters(seen, seen.local)
        few = (count_local_steps(seen) or 1) <= MOST_SIMULATED_STEPS
        return LocalSteps() if seen.update.kind == "gradient" or (certain and few) else OneGradient()


def _order_matters(seen: Observation, local: LocalTraining) -> bool:
    """Whether different examples were used in different steps, in an order that is not known."""
    if Knowledge.LABEL_ORDER in seen.knowledge and (seen.order is not None or not local.shuffle):
        return False
    return seen.num_examples is None or seen.num_examples > local.batch_size


def gradient_factor(seen: Observation) -> float:
    """Factor from the shared update to the mean gradient it stands for.

    Exact for SGD with any momentum, dampening and schedule as far as the gradients of all steps are equal.
    Weight decay stays in it: the result is then the mean gradient plus weight_decay · W. Of Adam it makes
    the mean direction of a step, in which an entry is about 1 however long the gradient was.
    """
    return 1.0 if seen.update.kind == "gradient" else _to_gradient(seen, seen.local)


def scale_known(seen: Observation) -> bool:
    """Whether `gradient_factor` gives the length of a gradient, not its direction alone."""
    if seen.update.kind == "gradient":
        return True
    return seen.local is not None and seen.local.adds_gradients and _steps(seen, seen.local) is not None


def count_local_steps(seen: Observation) -> int | None:
    """Steps behind an update: one for a gradient; None where that is not known."""
    if seen.update.kind == "gradient":
        return 1
    return None if seen.local is None else _steps(seen, seen.local)


def _to_gradient(seen: Observation, local: LocalTraining | None) -> float:
    """Factor from a delta to the mean gradient of its steps; its sign alone where the rate is unknown."""
    steps = None if local is None else _steps(seen, local)
    return -1.0 if local is None or steps is None else -1.0 / local.total_rate(steps)


def _steps(seen: Observation, local: LocalTraining) -> int | None:
    """Local steps of the client; None where they are counted in epochs over an unknown number of examples."""
    if seen.order is not None:
        return len(seen.order)
    if local.steps is not None:
        return local.steps
    return None if seen.num_examples is None else local.count_steps(seen.num_examples)
