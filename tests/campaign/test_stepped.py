"""Attacks are made shorter through their effort, whatever else they are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from leakscope.attack import Effort
from leakscope.attacks.fc_inversion import FCInversion
from leakscope.campaign.stepped import Length, has_restarts, length_of, resized, scaled, shortened
from leakscope.defences.noise import gaussian_noise
from leakscope.errors import UsageError
from leakscope.registry import get_attack


@dataclass(frozen=True)
class TwoPhases(FCInversion):
    """An attack whose length is the sum of two fields."""

    latent: int = 100
    weights: int = 300

    @property
    def effort(self) -> Effort:
        return Effort(self.latent + self.weights)

    def with_effort(self, effort: Effort) -> TwoPhases:
        assert effort.steps is not None
        return replace(self, latent=effort.steps // 4, weights=effort.steps - effort.steps // 4)


def test_lengths_are_what_an_attack_says_of_its_effort() -> None:
    assert length_of(get_attack("idlg")) == Length(300, restarts=1, attempts=4)
    assert length_of(get_attack("lbfgs-l2", restarts=5)).restarts == 5
    assert length_of(get_attack("fc-inversion")) == Length(None)
    assert length_of(TwoPhases()) == Length(400)


def test_only_what_an_attack_has_is_changed() -> None:
    short = resized(get_attack("idlg"), steps=3, restarts=2, retries=0)
    assert length_of(short) == Length(3, restarts=2, attempts=1)
    assert resized(get_attack("fc-inversion"), steps=3, restarts=2, retries=0) == get_attack("fc-inversion")
    assert resized(TwoPhases(), steps=40, restarts=9) == TwoPhases(latent=10, weights=30)
    assert has_restarts(get_attack("idlg"))
    assert not has_restarts(TwoPhases())


def test_a_length_an_attack_refuses_is_a_typed_error() -> None:
    with pytest.raises(UsageError, match="steps"):
        resized(get_attack("idlg"), steps=0)


def test_the_attacker_who_knows_a_defence_is_cut_to_the_same_share() -> None:
    attack = get_attack("inverting-gradients", schedule="paper")
    knowing = gaussian_noise(0.1).adapt(attack)
    assert (length_of(attack).steps, length_of(knowing).steps) == (4_800, 4_800)
    assert length_of(shortened(attack, steps=480, of=4_800)).steps == 480
    assert length_of(shortened(knowing, steps=480, of=4_800)).steps == 480


@pytest.mark.parametrize(
    ("own", "steps", "of", "expected"), [(300, 1, 300, 20), (10, 1, 300, 10), (300, 300, 300, 300), (301, 1, 2, 151)]
)
def test_a_share_is_never_below_the_floor_nor_above_the_whole(own: int, steps: int, of: int, expected: int) -> None:
    assert scaled(own, steps=steps, of=of) == expected
