"""GIAS: Jeon, Kim, Lee, Oh, Ok (NeurIPS 2021): first the latent of a generator, then its weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor, nn

from leakscope.errors import UsageError
from leakscope.matching.candidates import Candidate
from leakscope.matching.distances import Cosine, Distance
from leakscope.matching.engine import Watch
from leakscope.matching.facts import Fact
from leakscope.matching.labels import AsGranted
from leakscope.matching.latent import LATENT, Latent, TunedWeights
from leakscope.matching.optimisers import Adam
from leakscope.matching.penalties import TotalVariation
from leakscope.matching.prior_files import as_prior
from leakscope.matching.recipe import GradientMatching
from leakscope.matching.replays import AsKnown
from leakscope.matching.schedules import three_drops
from leakscope.matching.variables import Variables
from leakscope.priors import Prior
from leakscope.types import Knowledge, Observation, Reconstruction, SharedUpdate, Status

PAPER = "Jeon, Kim, Lee, Oh, Ok: Gradient Inversion with Generative Image Prior, NeurIPS 2021, arXiv:2110.14962"


@dataclass(frozen=True)
class Gias:
    """Two searches in turn: `latent_steps` for latents, then `weight_steps` for a generator per image."""

    prior: Prior
    latent_steps: int = 500
    weight_steps: int = 5_000
    latent_lr: float = 3e-2
    weight_lr: float = 1e-3
    tv: float = 1e-6
    restarts: int = 3
    num_examples: int | None = None
    distance: Distance = field(default_factory=Cosine)
    name: str = "gias"
    paper: str = PAPER
    needs: frozenset[Knowledge] = frozenset()

    def __post_init__(self) -> None:
        if self.weight_steps < 0:
            raise UsageError(f"attack 'gias' needs weight_steps ≥ 0, got {self.weight_steps}; 0 leaves the weights")
        self._search(Latent(self.prior), "latent")

    @property
    def steps(self) -> int:
        """Steps of both searches."""
        return self.latent_steps + self.weight_steps

    def with_steps(self, steps: int) -> Gias:
        """The same attack with both searches cut alike."""
        early = min(steps, max(1, round(steps * self.latent_steps / self.steps)))
        return replace(self, latent_steps=early, weight_steps=steps - early)

    def craft(self, model: nn.Module, history: Sequence[SharedUpdate] = ()) -> nn.Module:
        """Hand out the honest model."""
        return model

    def reconstruct(self, seen: Observation, seed: int = 0, *, watch: Watch | None = None) -> Reconstruction:
        """Search the latents, keep the best start, and let its weights go."""
        remembering = _Remembering(Latent(self.prior))
        early = self._search(remembering, "latent").reconstruct(seen, seed, watch=watch)
        early, latents = remembering.recalled(early)
        if not self.weight_steps:
            return early
        tuned = TunedWeights(self.prior, latents)
        late = self._search(tuned, "weights").reconstruct(seen, seed, watch=_later(watch, self.latent_steps))
        return _joined(early, late)

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The matching distance at a reconstruction, computed afresh by plain differentiation."""
        return self._search(Latent(self.prior), "latent").evaluate(seen, reconstruction)

    def informed(self, fact: Fact) -> Gias:
        """The same attack comparing updates as someone who knows of the defence does."""
        return replace(self, distance=self._search(Latent(self.prior), "latent").informed(fact).distance)

    def _search(self, candidate: Candidate, part: str) -> GradientMatching:
        early = part == "latent"
        return GradientMatching(
            name=self.name, paper=self.paper, labels=AsGranted(), candidate=candidate, replay=AsKnown(),
            distance=self.distance, penalties=(TotalVariation(self.tv),),
            optimiser=Adam(lr=self.latent_lr if early else self.weight_lr, schedule=three_drops),
            steps=self.latent_steps if early else self.weight_steps, restarts=self.restarts if early else 1,
            num_examples=self.num_examples, keep="last",
        )  # fmt: skip


def gias(
    *,
    prior: Prior | str | os.PathLike[str] | None = None,
    latent_steps: int = 500,
    weight_steps: int = 5_000,
    latent_lr: float = 3e-2,
    weight_lr: float = 1e-3,
    tv: float = 1e-6,
    restarts: int = 3,
    num_examples: int | None = None,
) -> Gias:
    """Match 1 − cos(g(G(z)), t) + TV over the latents z, then over a copy of G's weights per image.

    Args:
        prior: A file, a `Prior`, or "smooth" for slow cosines, which need no training.
        latent_steps: Steps for the latents; the authors take 500 at 32 pixels, 1000 at 128.
        weight_steps: Steps for the weights; 5000 and 8000. 0 stays with what the prior can make.
        latent_lr: Rate for the latents.
        weight_lr: Rate for the weights.
        tv: Weight of total variation.
        restarts: Searches of the latents; the lowest matching distance goes on to the weights.
        num_examples: Examples to assume where the scenario does not say.
    """
    return Gias(
        as_prior(prior, attack="gias"), latent_steps, weight_steps, latent_lr, weight_lr, tv, restarts, num_examples
    )


@dataclass(frozen=True, eq=False)
class _Remembering:
    """The latents of one run, by a number that each group's note carries to the chosen one."""

    inner: Latent
    kept: list[Tensor] = field(default_factory=list)

    def start(self, seen: Observation, count: int, rng: object) -> Variables:
        """As the inner candidate."""
        return self.inner.start(seen, count, rng)  # type: ignore[arg-type]

    def decode(self, seen: Observation, variables: Variables) -> Tensor:
        """As the inner candidate."""
        return self.inner.decode(seen, variables)

    def project(self, seen: Observation, variables: Variables) -> Variables:
        """As the inner candidate."""
        return variables

    def describe(self, seen: Observation, variables: Variables) -> tuple[str, ...]:
        """Keep the group's latents and note where."""
        self.kept.append(variables[LATENT])
        return (str(len(self.kept) - 1),)

    def recalled(self, found: Reconstruction) -> tuple[Reconstruction, Tensor]:
        """The reconstruction without the number, and the latents it stands for."""
        *notes, number = found.notes
        return replace(found, notes=tuple(notes)), self.kept[int(number)]


def _later(watch: Watch | None, steps: int) -> Watch | None:
    return None if watch is None else lambda step, images, distance: watch(steps + step, images, distance)


def _joined(early: Reconstruction, late: Reconstruction) -> Reconstruction:
    """The second search's result, unless it made the match worse."""
    history, evaluations = early.history + late.history, early.evaluations + late.evaluations
    if late.status is Status.OK and late.loss <= early.loss:
        # Each search starts where the one before ended; the first one's start counts for both.
        return replace(late, history=history, evaluations=evaluations, status=early.status)
    notes = (*early.notes, "tuning the generator's weights did not improve the match: the latents' image is returned")
    return replace(early, history=history, evaluations=evaluations, notes=notes)
