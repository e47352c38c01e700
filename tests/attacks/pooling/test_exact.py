from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from leakscope.attacks.closed.pooling.belief import Belief
from leakscope.attacks.closed.pooling.exact import exact
from leakscope.attacks.closed.pooling.gradient_evidence import BlockFacts, gradient_rows
from leakscope.attacks.closed.pooling.pooled_blocks import PooledBlock, take_apart
from leakscope.attacks.closed.pooling.smoothness import natural
from leakscope.rng import generator, normal_like
from tiny import seen_of


@pytest.fixture
def second(network, private) -> PooledBlock:
    """Twelve filters on 6 × 6 × 6 features: 648 equations from the gradient and 48 maxima, for 216 numbers."""
    return take_apart(seen_of(network(14, blocks=2), private(14), scenario="C"))[0][1]


@pytest.fixture
def first(network, private) -> PooledBlock:
    """Six filters on 7 × 7 pixels, of which the last row and column reach no window."""
    return take_apart(seen_of(network(7, seed=1), private(7), scenario="C"))[0][0]


def _problem(block: PooledBlock, *, seed: int = 2) -> tuple[torch.Tensor, BlockFacts, Belief]:
    """A true input, what would be known of it, and a belief a little off that has its winners right."""
    prior = natural(block.shape, (0.0, 1.0), like=block.weight)
    truth = prior.sample(1, generator(seed, "truth"), bounds=(0.0, 1.0)).flatten()
    entries = (block.weight @ truth[block.columns] + block.bias[:, None])[:, block.windows]
    odds = functional.one_hot(entries.argmax(2), 4).double()
    signal = normal_like(entries[..., 0], generator(seed, "signal"))
    gradient = torch.stack([gradient_rows(block, s[:, None] * o) @ truth for s, o in zip(signal, odds, strict=True)])
    off = truth + 1e-3 * normal_like(truth, generator(seed, "off"))
    known = BlockFacts(entries.amax(2), signal, gradient, torch.zeros_like(signal))
    return truth, known, Belief(off, 1e-6 * torch.eye(len(truth)).double(), odds)


def _seen(block: PooledBlock, belief: Belief) -> torch.Tensor:
    """Which inputs are in the patch of at least one winner: the others are in no equation."""
    places = block.columns[:, block.windows.gather(1, belief.odds.argmax(2).T)]
    return torch.zeros(block.inputs, dtype=torch.bool).index_fill(0, places.flatten(), True)


@pytest.mark.parametrize(("seed", "unseen"), [(1, 0), (2, 0), (8, 6)])
def test_right_winners_give_the_inputs_exactly(second, seed, unseen):
    truth, known, belief = _problem(second, seed=seed)
    found = exact(second, known, prior=natural(second.shape, (0.0, 1.0), like=truth), belief=belief)
    assert found is not None
    seen = _seen(second, belief)
    assert int((~seen).sum()) == unseen
    assert float((found.mean - truth)[seen].abs().max()) < 1e-9
    assert float(found.covariance.diagonal()[seen].max()) < 1e-8
    # A thousandth off, as they were believed to be.
    assert torch.allclose(found.mean[~seen], belief.mean[~seen], atol=1e-3)


def test_inputs_that_no_winner_saw_stay_as_believed_and_uncertain(first):
    truth, known, belief = _problem(first)
    found = exact(first, known, prior=natural(first.shape, (0.0, 1.0), like=truth), belief=belief)
    assert found is not None
    deviation = found.covariance.diagonal().sqrt().reshape(7, 7)
    assert float(deviation[6].min()) > 1e-3 < float(deviation[:, 6].min())
    assert float((found.mean - belief.mean).reshape(7, 7)[6, 6].abs()) < 1e-2


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("wrong", [1, 3])
def test_winners_that_nearly_tie_are_put_right(second, seed, wrong):
    truth, known, belief = _problem(second, seed=seed)
    entries = (second.weight @ truth[second.columns] + second.bias[:, None])[:, second.windows]
    best = entries.topk(2, 2)
    odds = belief.odds.clone()
    for place in best.values.diff(dim=2).abs().flatten().argsort()[:wrong]:
        channel, window = divmod(int(place), entries.shape[1])
        odds[channel, window] = functional.one_hot(best.indices[channel, window, 1], 4).double()
    prior = natural(second.shape, (0.0, 1.0), like=truth)
    found = exact(second, known, prior=prior, belief=replace(belief, odds=odds))
    assert found is not None
    assert torch.equal(found.odds, belief.odds)
    assert float((found.mean - truth).abs().max()) < 1e-9


def test_a_gradient_that_no_winners_explain_is_told(second):
    truth, known, belief = _problem(second)
    noisy = replace(known, gradient=known.gradient + 0.01 * normal_like(known.gradient, generator(2, "noise")))
    assert exact(second, noisy, prior=natural(second.shape, (0.0, 1.0), like=truth), belief=belief) is None


def test_with_fewer_equations_than_inputs_nothing_is_claimed(network, private):
    (block,), _ = take_apart(seen_of(network(12), private(12), scenario="C"))
    truth, known, belief = _problem(block)
    assert exact(block, known, prior=natural(block.shape, (0.0, 1.0), like=truth), belief=belief) is None
