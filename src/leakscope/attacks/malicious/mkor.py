"""Maximum Knowledge Orthogonality Reconstruction: a server whose weights pass pictures on, class by class.

Convolutions carry maxima and minima of the picture to the linear layers (`carrying`), which keep the classes apart
(`decoupling`); what comes back is computed, not searched for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.attack import Attack, CraftContext, Crafted, Watch
from leakscope.attacks.malicious.anatomy import Anatomy, examine
from leakscope.attacks.malicious.carrying.brackets import (
    Brackets,
    bracket,
    carried_values,
    invert_response,
    smooth_picture,
    stretch,
)
from leakscope.attacks.malicious.carrying.filters import FilterStrength, uses_batch_statistics, write_filters
from leakscope.attacks.malicious.carrying.routes import CarryPlan, plan_carrying
from leakscope.attacks.malicious.decoupling.losses import LossName, check_trained_with
from leakscope.attacks.malicious.decoupling.paths import ClassPaths, DecoupledForm, Form, write_paths
from leakscope.attacks.malicious.decoupling.read import ClassReading, UnreadableError, read_classes
from leakscope.attacks.malicious.kept_secret import kept_secret
from leakscope.attacks.malicious.mixtures import describe_mixtures, fail, known_members, settle_mixtures
from leakscope.errors import UnsuitableError, UsageError
from leakscope.types import Observation, Reconstruction

PAPER = (
    "Wang, Velipasalar, Gursoy: Maximum Knowledge Orthogonality Reconstruction with Gradients in Federated Learning, "
    "WACV 2024"
)
Variant = Literal["absent-class", "dump-class"]


@dataclass(frozen=True, eq=False)
class MkorSecret:
    """What the server remembers of the model it handed out."""

    anatomy: Anatomy
    plan: CarryPlan
    paths: ClassPaths
    batch_statistics: bool


@dataclass(frozen=True)
class Mkor(Attack):
    """Reads the examples of every class off one gradient, a class that occurs once exactly up to what pooling hides.

    Needs a chain of convolutions and linear layers with biases (`anatomy`), inputs in [0, 1], and one gradient of the
    whole batch: with several local steps the weights move away under the examples. Cross-entropy needs a class that
    does not occur, or gives one up (`variant`). Examples of the same class come back as their mean.
    """

    form: Form = "naive"
    loss: LossName = "cross-entropy"
    variant: Variant = "absent-class"
    alpha: float = -1.0
    beta: float = 1.0
    noise: float = 0.0
    shuffle: bool | None = None
    smooth: bool | None = None
    name: str = "mkor"
    paper: str = PAPER
    is_malicious = True

    def _craft(self, model: nn.Module, context: CraftContext) -> Crafted:
        anatomy = examine(model, context.input_shape, attack=self.name)
        has_softmax = self.loss == "cross-entropy" and self.variant == "absent-class"
        if has_softmax and any(stage.dropped for stage in anatomy.linear):
            raise UnsuitableError(
                "mkor with variant='absent-class' needs the same score for all classes, and dropout is active in the "
                "linear layers; use variant='dump-class'"
            )
        rng = random.generator(context.seed, self.name)
        shuffle = self.form == "inconspicuous" if self.shuffle is None else self.shuffle
        plan = plan_carrying(model, anatomy, attack=self.name, rng=rng if shuffle else None)
        write_filters(model, anatomy, plan, strength=FilterStrength(self.beta, self.noise), rng=rng, attack=self.name)
        style = DecoupledForm(self.form, self.alpha, self.noise, self._dump(model, anatomy, rng if shuffle else None))
        paths = write_paths(model, anatomy, style=style, rng=rng, shuffle=shuffle, attack=self.name)
        norms = [model.get_submodule(stage.norm) for stage in anatomy.convolutions if stage.norm is not None]
        return Crafted(model, MkorSecret(anatomy, plan, paths, any(map(uses_batch_statistics, norms))))

    def _dump(self, model: nn.Module, anatomy: Anatomy, rng: torch.Generator | None) -> int | None:
        if self.loss != "cross-entropy" or self.variant != "dump-class":
            return None
        head = model.get_submodule(anatomy.linear[-1].name)
        assert isinstance(head, nn.Linear)
        return head.out_features - 1 if rng is None else int(torch.randint(head.out_features, (), generator=rng))

    def _reconstruct(self, seen: Observation, seed: int, watch: Watch | None) -> Reconstruction:
        try:
            found, brackets, notes = self._read(seen)
        except UnreadableError as reason:
            return fail(seen, str(reason))
        inputs = self._estimate(seen, brackets)
        loss = _uncertainty(brackets, inputs)
        members = [one.members for one in found]
        targets = torch.tensor([one.label for one in found], device=seen.device)
        status = settle_mixtures(members, examples=seen.num_examples)
        notes = (*seen.notes, *notes, *describe_mixtures(members, examples=seen.num_examples))
        counted = known_members(members)
        return Reconstruction(inputs, targets, loss, status, (loss,), None, 1, notes, members=counted)

    def _read(self, seen: Observation) -> tuple[list[ClassReading], Brackets, list[str]]:
        """Features of every class, and the bounds of pixels that they give."""
        secret = _secret(seen)
        check_trained_with(seen, self.loss, attack=self.name)
        has_softmax = self.loss == "cross-entropy" and secret.paths.dump is None
        found, notes = read_classes(seen, secret.paths, has_softmax=has_softmax)
        features = torch.stack([one.features for one in found]).reshape(-1, *_planes(secret.anatomy))
        values = carried_values(secret.plan, features)
        if secret.batch_statistics:
            values = stretch(secret.plan, values)
            notes = [*notes, "batch statistics hid brightness and contrast: the batch is taken to span 0 to 1"]
        else:
            values = invert_response(secret.plan, values, beta=self.beta)
        if not secret.anatomy.convolutions:
            values = _undo_normalisation(secret.anatomy, values)
        sides = secret.anatomy.input_shape[1:] if len(secret.anatomy.input_shape) == 3 else _planes(secret.anatomy)[1:]
        brackets = bracket(secret.plan, values, sides=(sides[0], sides[1]))
        how = self.loss if self.loss == "raw-nll" else f"{self.loss}, {self.variant}"
        return found, brackets, [f"closed form on the model it crafted ({self.form}, {how})", *notes]

    def _estimate(self, seen: Observation, brackets: Brackets) -> Tensor:
        """The middle of the bounds, smoothed where the values were maxima."""
        secret = _secret(seen)
        middle = brackets.middle
        smooth = secret.plan.is_maximum if self.smooth is None else self.smooth
        if smooth and len(secret.anatomy.input_shape) == 3:
            middle = smooth_picture(middle)
        return middle.clamp(0, 1).reshape(-1, *seen.input_shape).to(seen.device, seen.dtype)

    def evaluate(self, seen: Observation, reconstruction: Reconstruction) -> float:
        """The largest error that the bounds leave for a pixel, on average, computed again."""
        return _uncertainty(self._read(seen)[1], reconstruction.inputs)

    def bounds(self, seen: Observation) -> Brackets:
        """What the update says of every pixel before anything is smoothed: bounds below and above it."""
        return self._read(seen)[1]


def mkor(
    *,
    form: Form = "naive",
    loss: LossName = "cross-entropy",
    variant: Variant = "absent-class",
    alpha: float = -1.0,
    beta: float = 1.0,
    noise: float = 0.0,
    shuffle: bool | None = None,
    smooth: bool | None = None,
) -> Mkor:
    """A malicious server that reads large batches class by class, without a search.

    Args:
        form: "naive" as released, or "inconspicuous": among the weights that were there.
        loss: what clients train with: "cross-entropy", or the release's "raw-nll" (`functional.nll_loss` on scores).
        variant: for cross-entropy: read against a class that is absent, or give one class up ("dump-class").
        alpha: factor between the two rows of a pair in the inconspicuous form; below 0.
        beta: the weight of a filter's tap; above 0.
        noise: deviation of what stands in the place of zeros.
        shuffle: whether channels and nodes are drawn at random; by default in the inconspicuous form.
        smooth: whether the result is smoothed; by default where pooling left maxima.
    """
    for option, value, known in (
        ("form", form, ("naive", "inconspicuous")),
        ("loss", loss, ("raw-nll", "cross-entropy")),
        ("variant", variant, ("absent-class", "dump-class")),
    ):
        if value not in known:
            raise UsageError(f"mkor needs {option} = {' or '.join(map(repr, known))}, got {value!r}")
    for is_fine, what in ((alpha < 0, f"alpha < 0, got {alpha}"), (beta > 0, f"beta > 0, got {beta}")):
        if not is_fine:
            raise UsageError(f"mkor needs {what}")
    if not noise >= 0:
        raise UsageError(f"mkor needs noise ≥ 0, got {noise}")
    return Mkor(form, loss, variant, alpha, beta, noise, shuffle, smooth)


def _secret(seen: Observation) -> MkorSecret:
    if seen.bounds != (0.0, 1.0):
        raise UnsuitableError(f"mkor needs inputs in [0, 1], got bounds {seen.bounds}; use inverting-gradients")
    return kept_secret(seen, MkorSecret, attack="mkor")


def _planes(anatomy: Anatomy) -> tuple[int, int, int]:
    """Channels, rows and columns of the features; a row of numbers is one plane of one row."""
    shape = anatomy.feature_shape
    return (shape[0], shape[1], shape[2]) if len(shape) == 3 else (1, 1, shape[-1])


def _undo_normalisation(anatomy: Anatomy, values: Tensor) -> Tensor:
    """Without a convolution nothing has taken the normalisation back."""
    if anatomy.constants is None:
        return values
    mean, std = (part.to(values).reshape(1, -1, 1, 1) for part in anatomy.constants)
    return values * std + mean


def _uncertainty(brackets: Brackets, inputs: Tensor) -> float:
    values = inputs.reshape(brackets.lower.shape).to(brackets.lower)
    return float(torch.maximum(values - brackets.lower, brackets.upper - values).clamp_min(0).mean())
