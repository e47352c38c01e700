"""The network, the pictures of each client, and how they are trained on: nothing here knows of leakscope's pieces."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import leakscope as ls

# Pictures of one client: few, as on a phone or in a small clinic.
PICTURES = 2
TEST_PICTURES = 32
MOMENTUM = 0.9


class Net(nn.Module):
    """Two convolutions and three linear layers, for pictures that come normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, pictures: Tensor) -> Tensor:
        """Scores of ten classes."""
        features = functional.max_pool2d(functional.relu(self.conv1(pictures)), 2)
        features = functional.max_pool2d(functional.relu(self.conv2(features)), 2).flatten(1)
        return self.fc3(functional.relu(self.fc2(functional.relu(self.fc1(features)))))


def normalise(pictures: Tensor) -> Tensor:
    """What the data pipeline does, outside of the network."""
    return (pictures - 0.5) / 0.5


def normalised_net() -> nn.Module:
    """The same network for pictures in [0, 1]: how leakscope is told what the pipeline does."""
    return nn.Sequential(ls.models.Normalise((0.5,) * 3, (0.5,) * 3), Net())


def pictures(client: int) -> ls.Batch:
    """What a client holds: CIFAR-10 where LEAKSCOPE_DATA has it, else crops of photographs that come with leakscope."""
    return _load("train", range(PICTURES * client, PICTURES * (client + 1)))


def test_pictures() -> ls.Batch:
    """What models are tested on."""
    return _load("test", range(TEST_PICTURES))


def _load(split: str, places: range) -> ls.Batch:
    if ls.data.is_available("cifar10"):
        return ls.data.load("cifar10", split=split, indices=list(places))
    every = ls.data.load("sample-photos", split=split)
    # Its classes come one after the other; clients have pictures of several.
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))
    rows = order[[place % len(every) for place in places]]
    return ls.Batch(every.inputs[rows], every.targets[rows])


def train(net: nn.Module, batch: ls.Batch, *, epochs: int, lr: float, batch_size: int) -> float:
    """SGD with momentum over shuffled batches of normalised pictures; returns the mean loss."""
    data = TensorDataset(normalise(batch.inputs), batch.targets)
    loader = DataLoader(data, batch_size=batch_size, shuffle=True)
    optimiser = torch.optim.SGD(net.parameters(), lr=lr, momentum=MOMENTUM)
    net.train()
    total, steps = 0.0, 0
    for _ in range(epochs):
        for inputs, targets in loader:
            optimiser.zero_grad()
            loss = functional.cross_entropy(net(inputs), targets)
            loss.backward()
            optimiser.step()
            total, steps = total + float(loss.detach()), steps + 1
    return total / steps


@torch.no_grad()
def evaluate(net: nn.Module, batch: ls.Batch) -> tuple[float, float]:
    """Loss and accuracy."""
    net.eval()
    scores = net(normalise(batch.inputs))
    right = float((scores.argmax(1) == batch.targets).float().mean())
    return float(functional.cross_entropy(scores, batch.targets)), right
