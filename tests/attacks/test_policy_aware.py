"""Policy-aware: every example has signs of its own, and pictures are in [0, 1]."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from leakscope.attacks.policy_aware import policy_aware
from leakscope.errors import UnsuitableError
from leakscope.metrics import score
from leakscope.models import build
from leakscope.observation.observe import observe
from leakscope.rng import generator, uniform
from leakscope.types import Batch, Observation, Status
from tiny import batch_of, dense, seen_of, shared


def moved(signs: list[int], *, seed: int = 0) -> Batch:
    """Noise moved by half the width, each picture to the side its sign says; black behind it."""
    noise = uniform((len(signs), 1, 8, 4), generator(seed, "moved"))
    black = torch.zeros_like(noise)
    rows = [
        torch.cat((dark, bright) if sign > 0 else (bright, dark), dim=-1)
        for sign, bright, dark in zip(signs, noise, black, strict=True)
    ]
    return Batch(torch.stack(rows), torch.arange(len(signs)))


def look(batch: Batch, *, scenario: str = "A") -> Observation:
    model = build("mlp", num_classes=4, in_channels=1, image_size=8, hidden=[64], activation="sigmoid", seed=3)
    return observe(model, shared(model, batch), scenario=scenario, truth=batch)


@pytest.mark.parametrize("signs", [[1, -1], [-1, 1], [1, 1], [1, -1, -1, 1]])
def test_every_example_has_a_sign_of_its_own(signs):
    batch = moved(signs)
    seen = look(batch)
    attack = policy_aware(policy="shift-x=0.5", steps=150)
    found = attack.reconstruct(seen, seed=1)
    assert found.status is Status.OK
    assert float(score(found, batch).psnr.min()) > 25
    (learnt,) = (note for note in found.notes if note.startswith("learnt"))
    numbers = [float(number) for number in learnt.split("shift-x ")[1].split(", ")]
    assert numbers == pytest.approx([0.5 * sign for sign in signs], abs=0.05)
    assert attack.evaluate(seen, found) == found.loss
    # Two signs for all, then each example's once: linear in their number.
    assert found.evaluations == 150 + 40 * (2 + len(signs))


def test_knowing_the_policy_of_a_batch_is_worth_something():
    batch = moved([1, -1, 1, -1])
    seen = look(batch)
    aware = policy_aware(policy="shift-x=0.5", steps=100).reconstruct(seen)
    naive = policy_aware(policy="shift", steps=100).reconstruct(seen)
    assert float(score(aware, batch).psnr.median()) > float(score(naive, batch).psnr.median()) + 3


def test_several_signs_of_several_examples_cost_their_sum():
    seen = look(moved([1, -1]), scenario="C")
    attack = policy_aware(policy="shift-x=0.5+contrast=0.3+shift-y+flip", steps=8, probe=3)
    found = attack.reconstruct(seen)
    assert found.evaluations == 8 + 3 * (4 + 2 * 2)
    said = ("4 sign hypotheses tried for 3 steps each", "then 4 single signs of 2 examples, for as many steps each")
    assert tuple(note for note in found.notes if "sign" in note) == said
    assert torch.equal(found.inputs, attack.reconstruct(seen).inputs)


def test_one_example_is_tried_with_whole_hypotheses_only():
    found = policy_aware(policy="shift-x=0.5+contrast=0.3", steps=8, probe=3).reconstruct(look(moved([-1])))
    assert found.evaluations == 8 + 3 * 4
    assert "4 sign hypotheses tried for 3 steps each" in found.notes
    assert "single signs" not in " ".join(found.notes)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 255.0), None])
def test_pictures_of_another_range_are_refused(bounds):
    seen = replace(seen_of(dense(), batch_of([1])), bounds=bounds)
    with pytest.raises(UnsuitableError, match=r"pictures in \[0, 1\].*got bounds.*let the model normalise"):
        policy_aware(policy="contrast", steps=2).reconstruct(seen)


@pytest.mark.parametrize("sign", [1, -1])
def test_of_the_hypotheses_for_one_example_the_nearest_is_run_in_full(sign):
    batch = moved([sign])
    found = policy_aware(policy="shift-x=0.5", steps=150).reconstruct(look(batch), seed=1)
    (learnt,) = (note for note in found.notes if note.startswith("learnt"))
    assert float(learnt.split("shift-x ")[1]) == pytest.approx(0.5 * sign, abs=0.05)
    assert float(score(found, batch).psnr.min()) > 25
