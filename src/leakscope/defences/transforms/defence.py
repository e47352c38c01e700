"""ATS: every picture passes through transformations, drawn anew each time, before the client trains on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Generator, Tensor

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.defence import ClientHooks, Defence
from leakscope.defences.transforms.policy import apply, check_pictures
from leakscope.errors import UsageError
from leakscope.matching.candidates import Alternatives, known_chains
from leakscope.operations.policy import Policy
from leakscope.types import Batch

PAPER = (
    "Gao, Guo, Zhang, Qiu, Wen, Liu: Privacy-preserving Collaborative Learning with Automatic Transformation Search, "
    "CVPR 2021, arXiv:2011.12505"
)

Augment = Literal["none", "crop-flip"]
# Pixels of black around a picture before it is cut out again at random.
PADDING = 4


@dataclass(frozen=True)
class Transforms(Defence):
    """Trains on T(x) instead of x, with T drawn anew for every picture at every local step.

    Attributes:
        policy: what is applied.
        augment: "crop-flip" cuts every picture out of a black frame of 4 pixels and mirrors half of them, before the
            policy.
    """

    policy: Policy
    augment: Augment = "none"
    name: str = "transforms"
    paper: str = PAPER
    strong_attacks: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.augment not in ("none", "crop-flip"):
            raise UsageError(f"transforms knows augment='none' and augment='crop-flip', got {self.augment!r}")
        strong = () if self.policy.is_identity else (f"policy-aware:policy={self.policy}",)
        object.__setattr__(self, "strong_attacks", strong)

    def hooks(self) -> ClientHooks:
        """Act on the examples of every local step; a policy that does nothing does nothing."""
        return ClientHooks() if self.policy.is_identity and self.augment == "none" else ClientHooks(batch=self._batch)

    def adapt(self, attack: Attack) -> Attack:
        """The attacker sends its pictures through the policy; what was drawn it has to find out.

        A random crop and a flip make a picture of a picture: there is nothing to know of them.
        """
        if self.policy.is_identity:
            return attack
        chains = known_chains(self.policy)
        return attack.revised(
            lambda recipe: replace(recipe, candidate=Alternatives(chains, recipe.candidate), draws_anew=True)
        )

    def _batch(self, batch: Batch, rng: Generator) -> Batch:
        check_pictures(batch.inputs)
        pictures = batch.inputs if self.augment == "none" else crop_and_flip(batch.inputs, rng)
        return replace(batch, inputs=apply(self.policy, pictures, rng=rng))


def transforms(policy: str = "3-1-7", augment: Augment = "none") -> Transforms:
    """Train on pictures transformed by an ATS policy, such as 3-1-7 or the hybrid 3-1-7+43-18-18."""
    return Transforms(Policy.parse(policy), augment)


def crop_and_flip(images: Tensor, rng: Generator) -> Tensor:
    """Every picture cut at random out of a black frame of 4 pixels, then mirrored or not."""
    count, _, height, width = images.shape
    framed = torch.nn.functional.pad(images, (PADDING,) * 4)
    drawn = random.uniform((count, 3), rng)
    found = []
    for one, (down, right, coin) in zip(framed, drawn.tolist(), strict=True):
        top, left = int(down * (2 * PADDING + 1)), int(right * (2 * PADDING + 1))
        cut = one[:, top : top + height, left : left + width]
        found.append(cut.flip(-1) if coin < 0.5 else cut)
    return torch.stack(found)
