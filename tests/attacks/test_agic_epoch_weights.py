"""AGIC over two epochs: the first counts whole, later ones by the second weight."""

from __future__ import annotations

import copy

import pytest
import torch

from leakscope.attacks.agic import agic
from leakscope.client import share
from leakscope.observation.observe import observe
from leakscope.rng import generator, normal_like
from tiny import batch_of, convolutional


def test_the_joint_loss_is_the_first_epochs_and_a_tenth_of_the_second():
    model, batch = convolutional(), batch_of([1, 2], seed=1)
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for name, value in moved.named_parameters():
            value.add_(0.2 * normal_like(value, generator(0, name)))
    seen = [observe(one, share(one, batch), scenario="C", truth=batch) for one in (model, moved)]
    attack = agic(steps=3, pre_steps=3, gammas=(1.0, 0.1))
    found = attack.reconstruct_epochs(seen)
    alone = [attack.evaluate(one, found.of_update(place)) for place, one in enumerate(seen)]
    assert abs(alone[0] - alone[1]) > 1e-3, "weights that are swapped would not show"
    assert found.joint.loss == pytest.approx(alone[0] + 0.1 * alone[1], rel=1e-4)
