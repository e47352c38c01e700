"""A recurrent network that reads an image row by row.

Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 1997; rows as a sequence as
in the pixel-by-pixel tests of recurrent networks.
"""

from __future__ import annotations

import math

from torch import Generator, Tensor, nn
from torch.nn import init

from leakscope.models.initialise import default
from leakscope.models.plan import NetworkPlan, chain

WIDTH = 128


def lstm(plan: NetworkPlan) -> nn.Sequential:
    """One layer of 128 cells, then the classifier: 117,002 parameters for 10 classes at 3×32×32."""
    return chain(
        plan,
        [
            ("rows", Rows()),
            ("rnn", LastState(plan.in_channels * plan.width)),
            ("fc", nn.Linear(WIDTH, plan.num_classes)),
        ],
    )


class Rows(nn.Module):
    """Images [n, channels, height, width] → sequences [n, height, channels · width]."""

    def forward(self, images: Tensor) -> Tensor:
        """All channels of one row are one step."""
        return images.transpose(1, 2).flatten(2)


class LastState(nn.Module):
    """A sequence [n, steps, width] → what the cells say after its last step."""

    def __init__(self, width: int) -> None:
        """Hold the cells."""
        super().__init__()
        self.cells = nn.LSTM(width, WIDTH, batch_first=True)

    def forward(self, sequence: Tensor) -> Tensor:
        """Read the sequence from first to last."""
        states, _last = self.cells(sequence)
        return states[:, -1]


def initialise_lstm(module: nn.Module, kind: str, parameter: Tensor, rng: Generator) -> None:
    """PyTorch's own scheme: U(−1/√cells, 1/√cells) on every recurrent tensor."""
    if isinstance(module, nn.LSTM):
        bound = 1 / math.sqrt(module.hidden_size)
        init.uniform_(parameter, -bound, bound, generator=rng)
    else:
        default(module, kind, parameter, rng)
