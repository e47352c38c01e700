"""Does a reconstruction point at its own example?"""

from __future__ import annotations

import pytest
import torch

from leakscope.errors import BadInputError
from leakscope.metrics import identify


def pool(count: int, seed: int) -> torch.Tensor:
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def test_weak_copies_identify_and_noise_does_not():
    truth, others = pool(20, 0), pool(180, 1)
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(2))
    weak = 0.5 + 0.4 * (truth - 0.5) + 0.1 * noise
    found = identify(weak, truth, distractors=others)
    assert found.rate == 1.0
    assert found.chance == pytest.approx(1 / 200)
    blind = identify(pool(20, 3), truth, distractors=others)
    assert blind.rate <= 0.1
    assert 40 < blind.rank.float().mean() < 160


def test_rank_counts_the_nearer_images():
    truth = torch.tensor([[0.0], [1.0]])
    others = torch.tensor([[0.3], [0.35], [0.9]])
    found = identify(torch.tensor([[0.34], [0.97]]), truth, distractors=others)
    assert found.rank.tolist() == [2, 0]
    assert found.correct.tolist() == [False, True]
    assert found.rate == 0.5


def test_assignment_pairs_and_leaves_out():
    truth = torch.eye(3)
    found = identify(truth[[2, 0]], truth, assignment=torch.tensor([1, -1, 0]))
    assert found.correct.tolist() == [True, False, True]
    assert found.rank.tolist() == [0, 2, 0]


def test_a_broken_reconstruction_identifies_nobody():
    guess = torch.eye(3)
    guess[1, 1] = float("nan")
    assert identify(guess, torch.eye(3)).rank.tolist() == [0, 2, 0]


def test_a_copy_in_the_pool_does_not_count_against_it():
    truth = torch.eye(2)
    assert identify(truth, truth, distractors=truth.clone()).rate == 1.0


def test_what_cannot_be_identified_is_refused():
    with pytest.raises(BadInputError, match="at least two images"):
        identify(torch.ones(1, 2), torch.ones(1, 2))
    with pytest.raises(BadInputError, match=r"per truth \(3\), got 2"):
        identify(torch.eye(3)[:2], torch.eye(3))
    with pytest.raises(BadInputError, match="reconstruction 5, but there are only 3"):
        identify(torch.eye(3), torch.eye(3), assignment=torch.tensor([0, 1, 5]))
