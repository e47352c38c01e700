"""Texts: how many of the private tokens are in a recovered set, and what a blind guess reaches."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.types import Batch, Reconstruction, Scores


def score_tokens(rec: Reconstruction, truth: Batch) -> Scores:
    """Recall and precision of a recovered set of tokens, one value per private text.

    `token_recall` is the share of a text's different tokens that are in the set; `token_precision` the share of the set
    that occurs in any of the texts, the same for all of them: a set belongs to the whole update. Where targets are
    tokens themselves, one for every place, they are private text as well: `target_recall` is the share of them that is
    in the set, and a label is right where all of a text's are.
    """
    if rec.tokens is None:
        raise BadInputError(
            "the private inputs are whole numbers (tokens), and this reconstruction holds no set of tokens; "
            "use the attack embedding-tokens"
        )
    found = rec.tokens.to(truth.inputs.device)
    recall = [torch.isin(text.unique(), found).double().mean() for text in truth.inputs]
    wanted = _predicted(truth)
    right = torch.isin(found, torch.cat([truth.inputs.flatten(), *wanted])).double()
    shares = torch.tensor([float(torch.isin(one, found).double().mean()) for one in wanted], device=found.device)
    precision = right.mean() if len(found) else torch.zeros((), dtype=torch.float64, device=found.device)
    return Scores(
        metrics={
            "token_recall": torch.stack(recall).float(),
            "token_precision": precision.float().expand(len(truth)).clone(),
            **({"target_recall": shares} if wanted else {}),
        },
        label_correct=shares == 1 if wanted else _labels(rec, truth),
        assignment=torch.arange(len(truth), device=truth.inputs.device),
    )


def guess_tokens(truth: Batch, vocabulary: int) -> Tensor:
    """Recall [n] that is expected of as many tokens as the update holds, drawn blindly from the vocabulary."""
    different = len(truth.inputs.unique())
    return torch.full((len(truth),), min(1.0, different / vocabulary), device=truth.inputs.device)


def _predicted(truth: Batch) -> list[Tensor]:
    """The different tokens that each text has to be completed with; none where targets are labels of texts."""
    if truth.targets.is_floating_point() or truth.targets.ndim < 2:
        return []
    # Places that do not count have a negative target.
    return [one[one >= 0].unique() for one in truth.targets]


def _labels(rec: Reconstruction, truth: Batch) -> Tensor:
    """Whether a label is among those that were read, each of which counts once."""
    if rec.targets is None or rec.targets.ndim != 1 or truth.targets.ndim != 1:
        return torch.zeros(len(truth), dtype=torch.bool, device=truth.inputs.device)
    left = Counter(rec.targets.tolist())
    correct = []
    for label in truth.targets.tolist():
        correct.append(left[label] > 0)
        left[label] -= 1
    return torch.tensor(correct, device=truth.inputs.device)
