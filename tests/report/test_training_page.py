"""The page of a training: inert, escaped, with curves, failures and keys."""

from __future__ import annotations

import math
import re

import torch
from torch import nn

from leakscope.federated.faults import Failure
from leakscope.federated.keys import KeyAccuracies
from leakscope.federated.play import RoundRecord
from leakscope.report.boundary import SIDE, draw_boundary
from leakscope.report.training_page import TrainingCurve, render_training

HOSTILE = '<script>alert("x")</script>'


def record(turn: int, **options) -> RoundRecord:
    usual = {"accuracy": 0.5 + turn / 10, "loss": 1.0, "weights": {0: 0.25, 3: 0.75}, "train_losses": {0: 1.0, 3: 2.0}}
    return RoundRecord(turn, **{**usual, "bytes_up": 1_000, "bytes_down": 3_000, **options})


def page(*records: RoundRecord, **options) -> str:
    found = records or (record(0), record(1))
    return render_training([TrainingCurve("fedavg", found)], title="mine", settings={}, **options)


def test_nothing_is_loaded_or_run():
    text = page()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert "script-src" not in policy[1]
    assert policy[1].startswith("default-src &#39;none&#39;")
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_what_clients_and_users_say_is_escaped():
    failed = record(0, failures=(Failure(3, HOSTILE),))
    text = render_training([TrainingCurve(HOSTILE, (failed,))], title=HOSTILE, settings={HOSTILE: HOSTILE}, keys=None)
    assert HOSTILE not in text
    assert text.count("&lt;script&gt;") >= 5


def test_totals_weights_and_failures_are_told():
    text = page(record(0), record(1, failures=(Failure(3, "it died"),)))
    assert "2,000 bytes" in text
    assert "6,000 bytes" in text
    assert "60.0 %" in text
    assert "<td>2</td><td>3</td><td>it died</td>" in text
    assert "client 3: from 75.0% to 75.0%" in text
    assert "None: every client" in page()


def test_rounds_without_a_finite_loss_are_passed_over():
    text = page(record(0), record(1, loss=math.inf), record(2, loss=math.nan), record(3, loss=0.5))
    assert "fedavg: from 1 to 0.5" in text
    assert "nan" not in re.sub(r"<style>.*?</style>", "", text, flags=re.S).lower().replace("finance", "")


def test_keys_have_a_table():
    keys = KeyAccuracies({0: 0.9, 1: 0.7}, random_key=0.6, initial_locks=0.4, random_and_initial=0.2)
    text = page(keys=keys)
    for shown in ("90.0 %", "70.0 %", "80.0 %", "60.0 %", "40.0 %", "20.0 %"):
        assert shown in text


def above(threshold: float) -> nn.Module:
    """Class 1 where y is above the threshold."""
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
        layer.bias.copy_(torch.tensor([0.0, -threshold]))
    return layer


def areas(text: str) -> list[tuple[float, float]]:
    """Top and width of the rectangles of class 1."""
    found = re.findall(r'<rect x="[\d.]+" y="([\d.]+)" width="([\d.]+)" height="4" fill="#ffd9c2">', text)
    return [(float(top), float(width)) for top, width in found]


def test_the_boundary_is_where_the_network_changes_its_mind():
    inputs, targets = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5]]), torch.tensor([0, 1, 1])
    model = above(0.0)
    text = draw_boundary(model, inputs, targets, title="half & half")
    tops = areas(text)
    # The upper half, whole rows of it: up is up.
    assert len(tops) == 60
    assert max(top for top, _ in tops) < SIDE / 2
    assert {width for _, width in tops} == {SIDE}
    assert areas(draw_boundary(above(9.0), inputs, targets, title="none")) == []
    assert "half &amp; half" in text
    assert text.count("<circle") == 1
    assert model.training
