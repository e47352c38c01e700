"""S_acc: how unlike transformed pictures are to an untrained network, a guess at the accuracy that is left."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.defences.transforms.policy import apply, check_pictures
from leakscope.defences.transforms.privacy_score import Variant, check_variant, evaluation_mode
from leakscope.errors import UsageError
from leakscope.networks import check_output
from leakscope.operations.policy import Policy

EPSILON = 1e-5
# What a policy must reach as released; made for CIFAR-100, where batches of 100 keep about 63 pictures.
THRESHOLD = -85.0
BATCH = 100
BATCHES = 10


def accuracy_score(
    policy: str | Policy,
    images: Tensor,
    *,
    model: nn.Module,
    variant: Variant = "released",
    seed: int = 0,
    place: int = 0,
) -> float:
    """S_acc of a policy on one batch of pictures; see `score_rows`.

    Args:
        policy: what transforms the pictures.
        images: [n, c, h, w] in [0, 1], one for each class as released; see `distinct_labels`.
        model: an untrained network, evaluated in evaluation mode.
        variant: "released" (higher is better) or "paper" (lower is better).
        seed: of the coins.
        place: number of the batch; coins depend on it and on `seed` alone.
    """
    check_pictures(images)
    transformed = apply(policy, images, rng=random.generator(seed, "search", "accuracy", place))
    return float(score_rows(jacobian_rows(model, transformed), variant))


def jacobian_rows(model: nn.Module, images: Tensor) -> Tensor:
    """The gradient of the sum of all logits in the pixels of each picture, flattened: [n, pixels]."""
    inputs = images.detach().requires_grad_()
    with evaluation_mode(model), torch.enable_grad():
        total = check_output(model(inputs)).sum()
        (found,) = torch.autograd.grad(total, [inputs])
    return found.flatten(1)


def score_rows(rows: Tensor, variant: Variant = "released") -> Tensor:
    """S_acc of Jacobian rows [n, pixels], from the eigenvalues v of their correlation matrix and ε = 1e-5.

        released:  −Σ [log(v + ε) + 1/(v + ε)]
        paper:     (1/N) Σ [log(v + ε) + 1/(v + ε)]

    N rows that are not correlated give −N as released and 1 as in the paper; nothing is higher, or lower. A row that
    does not vary is correlated with nothing, not even with itself, and costs 1/ε.

    References:
        Mellor et al., "Neural Architecture Search without Training", ICML 2021; Gao et al., CVPR 2021, section 4.3.
    """
    check_variant(variant)
    centred = rows.double() - rows.double().mean(1, keepdim=True)
    norms = centred.norm(dim=1, keepdim=True)
    unit = torch.where(norms > 0, centred / norms.clamp(min=torch.finfo(torch.float64).tiny), 0.0)
    # Rounding makes an eigenvalue of 0 a little negative.
    values = torch.linalg.eigvalsh(unit @ unit.T).clamp(min=0) + EPSILON
    terms = values.log() + 1 / values
    return terms.mean() if variant == "paper" else -terms.sum()


def is_accepted(score: float, threshold: float, variant: Variant) -> bool:
    """Whether a policy leaves enough accuracy: the released score is high, the papers' formula low, where it does."""
    return score <= threshold if variant == "paper" else score >= threshold


def distinct_labels(targets: Sequence[int] | Tensor) -> list[int]:
    """Positions of the first example of every class, in order: what the released loader keeps of a batch."""
    first: dict[int, int] = {}
    for position, target in enumerate(targets):
        first.setdefault(int(target), position)
    return list(first.values())


def accuracy_batches(length: int) -> list[range]:
    """The released positions of the test set, 200 … 299 up to 1100 … 1199; of a smaller one all it has."""
    if length < 1:
        raise UsageError("S_acc needs at least one picture, got none")
    begin = 200 if length >= 200 + BATCHES * BATCH else 0
    starts = range(begin, min(length, begin + BATCHES * BATCH), BATCH)
    whole = [range(start, start + BATCH) for start in starts if start + BATCH <= length]
    return whole or [range(length)]
