"""Recognisers of words: convolutions make a sequence of columns, recurrent layers read it, scores [T, n, classes].

Shi, Bai, Yao, "An End-to-End Trainable Neural Network for Image-based Sequence Recognition", TPAMI 2017, with the
widths, paddings and the order of ReLU before batch normalisation of Ren et al., "FedBoosting", 2020. For pictures of
height 32 and any width w there are w // 4 steps: 25 at 32×100.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Generator, Tensor, nn

from leakscope.models.initialise import kaiming_fan_in
from leakscope.models.lstm import initialise_lstm
from leakscope.models.plan import NetworkPlan, chain

CELLS, SMALL_CELLS = 256, 96
_HALVINGS = 16
Layers = list[tuple[str, nn.Module]]


def crnn(plan: NetworkPlan) -> nn.Sequential:
    """The published recogniser: 8,725,413 parameters for 36 characters and the blank at 3×32×100."""
    widths = (plan.in_channels, 64, 128, 256, 256, 512, 512)
    layers: Layers = []
    for number, (before, after) in enumerate(pairwise(widths), start=1):
        layers += [(f"conv{number}", nn.Conv2d(before, after, 3, padding=1)), (f"act{number}", plan.activation())]
        if number in (3, 5):
            layers.append((f"norm{number}", nn.BatchNorm2d(after)))
        layers += _pool(number)
    layers += [
        ("conv7", nn.Conv2d(512, 512, 2)),
        ("act7", plan.activation()),
        ("norm7", nn.BatchNorm2d(512)),
        ("columns", ColumnSequence()),
        ("rnn", SequenceReader(512 * (plan.height // _HALVINGS - 1), CELLS, layers=2)),
        ("fc", nn.Linear(2 * CELLS, plan.num_classes)),
    ]
    return chain(plan, layers)


def _pool(number: int) -> Layers:
    """Halve both sides behind the first two convolutions; behind the fourth and the sixth the height alone.

    The windows of the latter overlap along the width. Columns of zeros in front and behind keep the last convolution,
    which takes one column away, at w // 4.
    """
    if number <= 2:
        return [(f"pool{number}", nn.MaxPool2d(2))]
    if number not in (4, 6):
        return []
    left = 1 if number == 6 else 0
    return [
        (f"pad{number}", nn.ZeroPad2d((left, 1, 0, 0))),
        (f"pool{number}", nn.MaxPool2d(2, stride=(2, 1))),
    ]


def crnn_small(plan: NetworkPlan) -> nn.Sequential:
    """A recogniser that a CPU can train: strides instead of most pooling, one recurrent layer of 96 cells each way."""
    layers: Layers = []
    # Channels and strides: the first two halve both sides, the others the height alone.
    stages = ((32, 2), (64, 2), (128, (2, 1)), (128, (2, 1)))
    before = plan.in_channels
    for number, (after, stride) in enumerate(stages, start=1):
        layers += [
            (f"conv{number}", nn.Conv2d(before, after, 3, stride=stride, padding=1)),
            (f"act{number}", plan.activation()),
            (f"norm{number}", nn.BatchNorm2d(after)),
        ]
        before = after
    layers += [
        ("conv5", nn.Conv2d(before, 192, (2, 3), padding=(0, 1))),
        ("act5", plan.activation()),
        ("norm5", nn.BatchNorm2d(192)),
        ("columns", ColumnSequence()),
        ("rnn", SequenceReader(192 * (-(-plan.height // _HALVINGS) - 1), SMALL_CELLS, layers=1)),
        ("fc", nn.Linear(2 * SMALL_CELLS, plan.num_classes)),
    ]
    return chain(plan, layers)


class ColumnSequence(nn.Module):
    """Feature maps [n, channels, height, width] → a sequence of columns [width, n, channels · height]."""

    def forward(self, maps: Tensor) -> Tensor:
        """Every column is one step.

        Not a permutation: its gradient reaches a batch-normalising layer in column order, and PyTorch's backward on
        CPUs takes that for row order where the maps are those of one picture and one row high (seen in 2.13). The
        gradient of every layer below is then wrong, without an error.
        """
        return torch.stack(maps.flatten(1, 2).unbind(2))


class SequenceReader(nn.Module):
    """A sequence [T, n, width] → what recurrent layers that read it both ways say at every step, [T, n, 2 · cells]."""

    def __init__(self, width: int, cells: int, *, layers: int) -> None:
        """Hold the cells."""
        super().__init__()
        self.cells = nn.LSTM(width, cells, num_layers=layers, bidirectional=True)

    def forward(self, sequence: Tensor) -> Tensor:
        """Read from first to last and from last to first."""
        states, _last = self.cells(sequence)
        return states


def initialise_crnn(module: nn.Module, kind: str, parameter: Tensor, rng: Generator) -> None:
    """Kaiming convolutions, so that an untrained network still tells pictures apart; the rest as in PyTorch."""
    rule = kaiming_fan_in if isinstance(module, nn.Conv2d) else initialise_lstm
    rule(module, kind, parameter, rng)
