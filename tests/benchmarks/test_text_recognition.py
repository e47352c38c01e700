from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakscope.data import RenderedWords
from leakscope.types import Batch


def test_the_rate_goes_up_and_down_once(load) -> None:
    rate_at = load("text_recognition").rate_at
    rates = [rate_at(step, 1_000, highest=2.0) for step in range(1_000)]
    assert rates.index(max(rates)) == 100
    assert max(rates) == pytest.approx(2.0)
    assert rates[0] == pytest.approx(0.1)
    assert rates[-1] < 0.01
    assert all(later > earlier for earlier, later in pairwise(rates[:101]))
    assert all(later < earlier for earlier, later in pairwise(rates[100:]))


def test_chunks_follow_on_each_other_and_hold_both_styles(load, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("text_recognition")
    monkeypatch.setattr(module, "CHUNK", 8)
    (first, _), (second, targets) = module.render(0), module.render(1)
    plain, scene = (RenderedWords(style) for style in ("plain", "scene"))
    assert np.array_equal(second[:4], plain.pictures(range(4, 8)))
    assert np.array_equal(second[4:], scene.pictures(range(4, 8)))
    assert np.array_equal(first[:4], plain.pictures(range(4)))
    assert np.array_equal(targets[:4], plain.targets(range(4, 8)).numpy())


def test_the_share_of_words_read(load) -> None:
    class Says(nn.Module):
        """Reads A, B where a picture is bright, and A where it is dark."""

        def forward(self, pictures: Tensor) -> Tensor:
            bright = pictures.mean((1, 2, 3)) > 0.5
            steps = torch.where(bright[:, None], torch.tensor([1, 0, 2]), torch.tensor([1, 1, 0]))
            return functional.one_hot(steps.T, 3).float()

    pictures = torch.stack([torch.full((3, 4, 4), tone) for tone in (0.9, 0.1, 0.8, 0.2)])
    texts = torch.tensor([[1, 2], [1, 0], [1, 0], [2, 0]])
    assert load("text_recognition").read_share(Says(), Batch(pictures, texts)) == 0.5


def test_kinds_of_text_and_the_table(load) -> None:
    reading, federations = load("text_recognition"), load("text_federations")
    assert [reading.kind_of_text(text) for text in ("ABC", "123", "A1B")] == ["letters", "digits", "letters and digits"]
    setting = federations.TextSetting("fedboosting, as written", 32, 4, 0)
    assert setting.name == "fedboosting-as-written-b32-e4-s0"
    row = {"setting": vars(setting), "accuracy": {"plain": 0.9, "scene": 0.7}, "megabytes": 12.3}
    assert "| fedboosting, as written | 32 | 4 | 0 | 90.0 | 70.0 | 80.0 | 12 |" in federations.table([row])
