"""How an audit ended: status, scores per example, and the result of one cell."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from leakscope.errors import UsageError, suggest
from leakscope.result_words import result_line, result_table

# Null baselines: what is reached without the update. `AuditResult.baselines` has them by these names.
GUESS = "blind guess"
PRIOR = "prior alone"
PUBLIC = "nearest public picture"
RANDOM_TOKENS = "random tokens"
# Who can open sealed updates: `AuditResult.viewer`. Whoever holds the key sees the total; the server has every client's
# ciphertext besides, so that a client which colludes with it sees all.
TOTAL = "whoever opens the total"
COLLUDING = "a client that colludes with the server"


class Status(str, enum.Enum):
    """How a cell ended. Only `OK` is evidence that something is safe; what was rebuilt leaks whatever the status.

    `UNEXPLAINED`: the result explains the update no better than an unrelated picture would, or another description of
    the update explains it better than the declared one. `UNFINISHED`: the run was cut short while it still got closer.
    """

    OK = "ok"
    UNEXPLAINED = "unexplained"
    UNFINISHED = "unfinished"
    DIVERGED = "diverged"
    NAN = "nan"
    OOM = "oom"
    TIMEOUT = "timeout"
    ERROR = "error"
    REFUSED = "refused"
    SEALED = "sealed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Fit:
    """How much of an update a reconstruction explains.

    Attributes:
        explained: 1 − ‖u − û‖²/‖u‖², where u is the update and û the one of the reconstruction, scaled best where the
            scale of u is not known. It may be negative.
        cosine: the cosine of u and û.
        unrelated: the most that pictures drawn without the update, with the same labels, explain on this network.
        truth: what the true examples explain; None wherever the truth is not at hand.
        diagnosis: one line that names a description which explains the update better than the declared one, with the
            figure; empty where there is none.
    """

    explained: float
    cosine: float
    unrelated: float
    truth: float | None = None
    diagnosis: str = ""


@dataclass(frozen=True)
class Scores:
    """One value per private example and metric, after optimal assignment.

    `scores["psnr"]`, `scores.psnr` and `scores.metrics["psnr"]` are the same tensor [n]. `len(scores)` is the number of
    examples, not of metrics: those are `scores.names()`.

    Attributes:
        metrics: name → one value per example.
        label_correct: whether the label beside each reconstruction is that of the example, bool [n].
        assignment: the reconstruction paired with each example, −1 when there was none.
    """

    metrics: Mapping[str, Tensor]
    label_correct: Tensor
    assignment: Tensor

    def __len__(self) -> int:
        return len(self.assignment)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.metrics:
            raise UsageError(f"{name!r} was not measured.{suggest(name, self.metrics)}")
        return self.metrics[name]

    def names(self) -> tuple[str, ...]:
        """What was measured."""
        return tuple(self.metrics)

    @property
    def leading(self) -> Tensor:
        """What ranks examples by how much of them leaked, higher for more: PSNR, or recall for tokens."""
        return self["psnr" if "psnr" in self.metrics else "token_recall"]

    @property
    def psnr(self) -> Tensor:
        """Peak signal-to-noise ratio in dB."""
        return self["psnr"]

    @property
    def ssim(self) -> Tensor:
        """Structural similarity."""
        return self["ssim"]

    @property
    def mse(self) -> Tensor:
        """Mean squared error."""
        return self["mse"]

    @property
    def lpips(self) -> Tensor | None:
        """Learned perceptual distance; None when it was not measured."""
        return self.metrics.get("lpips")

    @classmethod
    def join(cls, parts: Sequence[Scores]) -> Scores:
        """The scores of several victims one after the other, in the metrics that all of them have."""
        names = [name for name in parts[0].metrics if all(name in part.metrics for part in parts)]
        return cls(
            metrics={name: torch.cat([part.metrics[name] for part in parts]) for name in names},
            label_correct=torch.cat([part.label_correct for part in parts]),
            assignment=torch.cat([part.assignment for part in parts]),
        )


@dataclass(frozen=True, repr=False)
class AuditResult:
    """One cell: an attack on one or more victims under one defence and scenario.

    `adaptive` marks the attacker who knows the defence. Where a defence
    changed the pictures, `scores` are against the originals and `trained_scores` against what was trained on.
    Several rounds are rows of the same result. `also` holds what attackers did whom the defence names as stronger.
    Of sealed updates the server has nothing, and `also` holds what those get who can open them; `viewer` says who.
    `fits` holds one value per attacked update. `baselines` holds, by name, what is reached without the update on the
    same examples; `baseline_psnr` is the best of them.
    """

    attack: str
    defence: str
    scenario: str
    seed: int
    status: Status
    scores: Scores | None
    adaptive: bool = False
    loss: float = float("nan")
    baseline_psnr: Tensor | None = None
    history: tuple[float, ...] = ()
    evaluations: int = 0
    seconds: float = 0.0
    reconstruction: Tensor | None = None
    truth: Tensor | None = None
    notes: tuple[str, ...] = ()
    trained_scores: Scores | None = None
    rounds: int = 1
    server: Literal["honest", "malicious"] = "honest"
    also: tuple[AuditResult, ...] = ()
    viewer: str = ""
    fits: tuple[Fit, ...] = ()
    baselines: Mapping[str, Tensor] = field(default_factory=dict)

    def __repr__(self) -> str:
        return result_line(self)

    def _repr_html_(self) -> str:
        return result_table(self)
