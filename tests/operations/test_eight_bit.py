"""Every operation of the library against Pillow on real pictures, in colour and in grey."""

from __future__ import annotations

import pytest
import torch

from leakscope.data import load
from leakscope.matching.candidates import TRANSFORMS
from leakscope.operations import eight_bit
from leakscope.operations.library import Entry
from leakscope.rng import generator, uniform
from pillow_operations import ENTRIES, by_pillow

NAMES = [f"{entry.name} {sign * entry.amount:.3g}" for entry, sign in ENTRIES]


def photos() -> torch.Tensor:
    """About 100 crops of photographs, 32 × 32, as levels."""
    pytest.importorskip("skimage")
    pytest.importorskip("sklearn")
    return eight_bit.quantise(load("sample-photos", split="train", indices=list(range(0, 150, 3))).inputs)


def others() -> torch.Tensor:
    """What photographs lack: noise, few levels, one level, and a picture that is not square."""
    noise = (uniform((4, 3, 20, 28), generator(0, "levels")) * 256).floor()
    noise[1] = (noise[1] / 64).floor() * 60
    noise[2] = 77
    noise[3] = noise[3] / 9 + 100
    return noise.to(torch.uint8)


def ours(levels: torch.Tensor, entry: Entry, sign: int) -> torch.Tensor:
    return eight_bit.OPERATIONS[entry.name](
        levels, torch.full((len(levels),), entry.amount * sign, dtype=torch.float64)
    )


@pytest.mark.parametrize("grey", [False, True], ids=["colour", "grey"])
@pytest.mark.parametrize(("entry", "sign"), ENTRIES, ids=NAMES)
def test_every_operation_is_pillows_to_the_level(entry, sign, grey):
    for pictures in (photos(), others()):
        levels = pictures[:, 1:2] if grey else pictures
        assert torch.equal(ours(levels, entry, sign), by_pillow(levels, entry, sign))


def test_every_picture_has_an_amount_of_its_own():
    pictures = photos()[:4]
    amounts = torch.tensor([0.2, -0.2, 0.4, 0.0], dtype=torch.float64)
    for name in ("translate-x", "translate-y", "shear-y", "contrast", "brightness", "colour", "sharpness"):
        together = eight_bit.OPERATIONS[name](pictures, amounts)
        for place in range(4):
            alone = eight_bit.OPERATIONS[name](pictures[[place]], amounts[[place]])
            assert torch.equal(together[[place]], alone)
        assert torch.equal(together[3], pictures[3])


# How far the attacker's version may be from the client's, in levels: most and mean. Pillow cuts off where it would have
# to round, once or twice; the attacker's shear is linear and its turn takes no whole pixels, so that those two are far
# off at edges in the picture and of the picture.
FAR = {"shear-y": (130, 2.8), "rotate": (115, 6.5)}


@pytest.mark.parametrize(("entry", "sign"), ENTRIES, ids=NAMES)
def test_the_attackers_operation_is_the_clients_but_for_rounding(entry, sign):
    levels = photos()
    transform = TRANSFORMS["rotate-grey" if entry.name == "rotate" else entry.name]
    amount = {"invert": 1.0, "solarise": entry.amount / 255}.get(entry.name, entry.amount * sign)
    rows = torch.full((len(levels), len(transform.start)), amount, dtype=torch.float64)
    gap = (transform.apply(levels.double() / 255, rows) * 255 - ours(levels, entry, sign).double()).abs()
    most, mean = FAR.get(entry.name, (1.3, 0.55))
    assert float(gap.max()) <= most + 1e-6
    assert float(gap.mean()) <= mean
