"""AGIC: Xu, Hong, Huang, Chen, Decouchant (SRDS 2022)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import nn

from leakscope import rng as random
from leakscope.attack import Watch
from leakscope.attacks.agic_epochs import EpochOptions, EpochsReconstruction, JointAttack, Rounds
from leakscope.client import replay_gradient, replay_local, trainable
from leakscope.counts import MOST_SIMULATED_STEPS
from leakscope.errors import UsageError
from leakscope.matching.distances import BatchNormRule, Cosine, LayerWeighted
from leakscope.matching.distances.layer_weights import PUBLISHED_BETA, Ramp
from leakscope.matching.gradient_matching import GradientMatching
from leakscope.matching.labels import DistinctFirst
from leakscope.matching.presets import Preset, held_preset, schedule_preset
from leakscope.matching.recipe import Recipe
from leakscope.matching.replays import OneGradient
from leakscope.tensors import dot, global_norm
from leakscope.types import Knowledge, LocalTraining, Observation, Reconstruction

PAPER = (
    "Xu, Hong, Huang, Chen, Decouchant: AGIC: Approximate Gradient Inversion Attack on Federated Learning, SRDS 2022"
)

AgicSchedule = Literal["accelerated", "held", "paper"]

_BESIDES = "batch normalisation with stored statistics: untrained networks gave more away to schedule='held'; run both"

# Below this the model moved too much in its local steps to call them one.
VALID_COSINE = 0.95


@dataclass(frozen=True)
class OneBatch(OneGradient):
    """All local steps as one gradient of all their examples: ΔW ≈ −μ Σ_j ∇L(W, x_j).

    The sum over T steps is divided by T as well, so that it is the mean gradient of the merged
    batch: the cosine does not mind, a distance that knows lengths would.
    """

    def needs(self, seen: Observation) -> frozenset[Knowledge]:
        """The learning rate, for a delta."""
        return frozenset() if seen.update.kind == "gradient" else frozenset({Knowledge.LEARNING_RATE})


@dataclass(frozen=True)
class Agic(GradientMatching):
    """Gradient matching by AGIC's rules; says how far the one-batch approximation holds."""

    several: EpochOptions = field(default_factory=lambda: EpochOptions(pre_steps=100))
    schedule: AgicSchedule = "accelerated"

    @property
    def joins_rounds(self) -> bool:
        """Recognises the examples that rounds share, unless something is searched for that each round drew anew."""
        return not self.recipe.draws_anew

    def revised(self, change: Callable[[Recipe], Recipe]) -> Agic:
        """The same attack by another recipe; how rounds are joined stays its own."""
        return replace(self, recipe=replace(change(self.recipe), joins_rounds=False))

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The matching distance again: of all rounds where the reconstruction was made from several."""
        if reconstruction.joint is None:
            return super().evaluate(seen, reconstruction)
        return self._joint.evaluate_latest(_rounds_of(seen), reconstruction, reconstruction.joint)

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        if not seen.earlier or not self.joins_rounds:
            return super()._reconstruct(seen, seed, watch)
        return self._joint.reconstruct_latest(_rounds_of(seen), seed=seed, watch=watch)

    def _reconstruct_several(self, seen: Sequence[Observation], seed: int, watch: Watch | None) -> list[Reconstruction]:
        """Victims of whom one round was seen run in lockstep, the others each by itself."""
        places = [place for place, one in enumerate(seen) if not one.earlier]
        lockstep = super()._reconstruct_several([seen[place] for place in places], seed, watch)
        found = {
            place: replace(one, notes=(*one.notes, *self._notes(seen[place], one)))
            for place, one in zip(places, lockstep, strict=True)
        }
        for place, one in enumerate(seen):
            if one.earlier:
                found[place] = self._reconstruct(one, random.child_seed(seed, "victim", place), watch)
        return [found[place] for place in range(len(seen))]

    def reconstruct_epochs(
        self, seen: Sequence[Observation], seed: int = 0, *, epochs: Sequence[int] | None = None
    ) -> EpochsReconstruction:
        """Rebuild the examples behind several updates of one client, each from its own global model.

        `epochs` numbers the epoch of every update; without it each update is an epoch of its own.
        """
        return self._joint.reconstruct(Rounds.of(seen, epochs), seed=seed)

    def evaluate_epochs(
        self, seen: Sequence[Observation], found: EpochsReconstruction, *, epochs: Sequence[int] | None = None
    ) -> float:
        """The joint distance at what `reconstruct_epochs` found, computed again."""
        return self._joint.evaluate(Rounds.of(seen, epochs), found.examples)

    def _notes(self, seen: Observation, found: Reconstruction) -> tuple[str, ...]:
        """The weights of the layers, whether another schedule is stronger here, how far one batch stands for many."""
        notes = (*self.recipe.distance.notes, *_approximation(seen, found))
        if self.schedule == "accelerated" and uses_stored_statistics(seen.model):
            return (*notes, _BESIDES)
        return notes

    @property
    def _joint(self) -> JointAttack:
        return JointAttack(self, self.several)


def agic(
    *,
    beta: float = PUBLISHED_BETA,
    steps: int | None = None,
    schedule: AgicSchedule = "accelerated",
    relu_modifier: bool = True,
    batch_norm: BatchNormRule = "as-conv",
    ramp: Ramp = "linear",
    signed: bool | None = None,
    tv: float | None = None,
    lr: float | None = None,
    restarts: int = 1,
    num_examples: int | None = None,
    pre_steps: int | None = None,
    gammas: Sequence[float] | None = None,
    most: float = float("inf"),
) -> Agic:
    """Match one gradient of all examples, 1 − Σα⟨g, t⟩/√(Σα‖g‖² Σα‖t‖²) + TV, later convolutions weighing more.

    A delta is taken for one gradient of the merged batch, so that a run costs the same for any number of local steps.

    `schedule="paper"` is the published optimiser: Adam on the gradient as it is, rate 0.1, 10,000 steps, an absolute TV
    weight of 1e-4; `signed=True` takes signs instead. `schedule="held"` is the strongest measured on untrained residual
    networks with stored statistics: the same steps, 1,000 of them, at a rate that never falls.

    `ramp` is how weights rise from the first convolution to the last; Table I of the paper compares three.

    `pre_steps`, `gammas` and `most` are for `reconstruct_epochs`; epochs weigh the same unless `gammas` says otherwise,
    in the paper's schedule 1 and 0.1.
    """
    preset = _preset(schedule, lr=lr, tv=tv, steps=steps, signed=signed)
    before, weights = _EPOCHS[schedule]
    gammas = weights if gammas is None else gammas
    if len(gammas) != 2 or not all(0 <= weight < float("inf") for weight in gammas) or not any(gammas):
        raise UsageError(f"gammas needs two weights ≥ 0, of the first and of later epochs, got {gammas!r}")
    return Agic(
        name="agic",
        paper=PAPER,
        recipe=Recipe(
            labels=DistinctFirst(),
            candidate=preset.candidate,
            replay=OneBatch(),
            distance=LayerWeighted(Cosine(), beta, relu_modifier, batch_norm, ramp),
            penalties=(preset.penalty,),
            optimiser=preset.optimiser,
        ),
        steps=preset.steps,
        restarts=restarts,
        num_examples=num_examples,
        keep="last",
        several=EpochOptions(before if pre_steps is None else pre_steps, (gammas[0], gammas[1]), most),
        schedule=schedule,
    )


# Steps of each update alone, and the weights of the first and of later epochs.
_EPOCHS: dict[str, tuple[int, tuple[float, float]]] = {
    "accelerated": (100, (1.0, 1.0)),
    "held": (300, (1.0, 1.0)),
    "paper": (2_000, (1.0, 0.1)),
}


def _preset(schedule: str, *, lr: float | None, tv: float | None, steps: int | None, signed: bool | None) -> Preset:
    """The schedule of this name; only the published one leaves the choice of signs."""
    if schedule == "paper":
        return schedule_preset("paper", lr=lr, tv=tv, steps=steps, paper_steps=10_000, signed=signed is True)
    own = {"accelerated": True, "held": False}
    if schedule not in own:
        raise UsageError(f"schedule must be 'accelerated', 'held' or 'paper', got {schedule!r}")
    if signed is not None and signed is not own[schedule]:
        raise UsageError(f"schedule {schedule!r} has signed={own[schedule]}, got signed={signed}; use schedule='paper'")
    return (
        held_preset(lr=lr, tv=tv, steps=steps)
        if schedule == "held"
        else schedule_preset("accelerated", lr=lr, tv=tv, steps=steps)
    )


def uses_stored_statistics(model: nn.Module) -> bool:
    """Whether some batch normalisation of the network uses the statistics of earlier batches."""
    kind = nn.modules.batchnorm._BatchNorm
    return any(isinstance(m, kind) and not m.training and m.track_running_stats for m in model.modules())


def one_batch_cosine(seen: Observation, found: Reconstruction, local: LocalTraining) -> float:
    """Cosine between the simulated local steps on the reconstruction and one gradient of all of it."""
    assert found.targets is not None
    parameters = {name: value.detach().requires_grad_() for name, value in trainable(seen.model).items()}
    change = replay_local(
        seen.model,
        parameters,
        found.inputs,
        found.targets,
        local=local,
        loss=seen.loss,
        create_graph=False,
        order=seen.order,
    )
    once = replay_gradient(seen.model, parameters, found.inputs, found.targets, loss=seen.loss, create_graph=False)
    lengths = global_norm(change) * global_norm(once)
    return -float((dot(change, once) / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)).detach())


def _rounds_of(seen: Observation) -> Rounds:
    return Rounds.of((*seen.earlier, seen))


def _approximation(seen: Observation, found: Reconstruction) -> tuple[str, ...]:
    local = seen.local if seen.update.kind == "delta" else None
    steps = 0 if local is None else local.count_steps(len(found.inputs))
    if local is None or steps <= 1:
        return ()
    if steps > MOST_SIMULATED_STEPS:
        return (f"one-batch approximation of {steps:,} local steps: not checked, too many to simulate",)
    cosine = one_batch_cosine(seen, found, local)
    said = f"one-batch approximation: cosine {cosine:.4f} with {steps} local steps at rate {local.lr:g}"
    # Written so that a NaN counts as invalid.
    invalid = not cosine >= VALID_COSINE
    advice = f"; WARNING: below {VALID_COSINE} it does not hold, use inverting-gradients with replay='simulate'"
    return (said + advice if invalid else said,)
