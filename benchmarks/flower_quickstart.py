"""The client of Flower's PyTorch quick start, run by Flower itself, with every update kept: what an engineer captures.

The network is the quick start's: two convolutions, three linear layers. Pictures are normalised in the data pipeline,
outside the network; batches are shuffled and hold up to 32 pictures; the optimiser is SGD with momentum 0.9, unless a
variant says otherwise. Clients hold few pictures, so that attacks can explain their updates.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import leakscope as ls

# CIFAR-10 test pictures of the clients; fixed before the first run.
PARTITIONS: tuple[tuple[int, ...], ...] = ((20,), (21, 22), (23, 24, 26, 27))
Weights = dict[str, Tensor]


class Net(nn.Module):
    """The quick start's network, with dropout where a variant asks for it."""

    def __init__(self, *, dropout: float = 0.0, normalised: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()
        self.fc3 = nn.Linear(84, 10)
        self.normalised = normalised

    def forward(self, images: Tensor) -> Tensor:
        """Scores of ten classes."""
        # The right declaration: what the data pipeline does, as a part of the network.
        images = (images - 0.5) / 0.5 if self.normalised else images
        features = self.pool(functional.relu(self.conv1(images)))
        features = self.pool(functional.relu(self.conv2(features))).flatten(1)
        features = functional.relu(self.fc2(functional.relu(self.fc1(features))))
        return self.fc3(self.drop(features))


class OtherNet(Net):
    """What fits the same file of weights and is another function of them."""

    def forward(self, images: Tensor) -> Tensor:
        """Scores of ten classes."""
        images = (images - 0.5) / 0.5 if self.normalised else images
        features = functional.avg_pool2d(torch.tanh(self.conv1(images)), 2)
        features = functional.avg_pool2d(torch.tanh(self.conv2(features)), 2).flatten(1)
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc1(features)))))


def build() -> nn.Module:
    """The network as the app has it: pictures come normalised."""
    return Net()


def build_normalised() -> nn.Module:
    """The network that takes pictures in [0, 1]."""
    return Net(normalised=True)


def build_other() -> nn.Module:
    """Another architecture whose weights have the same shapes: tanh and mean pooling."""
    return OtherNet(normalised=True)


def build_dropout() -> nn.Module:
    """The normalised network with dropout, declared inactive."""
    return Net(dropout=0.5, normalised=True).eval()


@dataclass(frozen=True)
class Variant:
    """What a client does differently from the quick start."""

    optimiser: str = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    epochs: int = 1
    dropout: float = 0.0
    reduction: str = "mean"


VARIANTS = {
    "quick start": Variant(epochs=3),
    "plain": Variant(momentum=0.0, epochs=8),
    "adam": Variant(optimiser="adam", lr=0.001, epochs=2),
    "dropout": Variant(dropout=0.5),
    "summed": Variant(reduction="sum"),
    "weight decay": Variant(weight_decay=0.1, momentum=0.0, epochs=3),
}


def initial_weights(seed: int = 0) -> Weights:
    """What the server hands out."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return {name: value.detach().clone() for name, value in Net().state_dict().items()}


def train_client(weights: Weights, partition: int, variant: Variant) -> tuple[Weights, int]:
    """The quick start's local training: weights after it, and the number of pictures."""
    batch = ls.data.load("cifar10", split="test", indices=list(PARTITIONS[partition]))
    images, labels = (batch.inputs - 0.5) / 0.5, batch.targets
    torch.manual_seed(partition)
    model = Net(dropout=variant.dropout)
    model.load_state_dict(weights)
    model.train()
    if variant.optimiser == "adam":
        optimiser: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=variant.lr)
    else:
        optimiser = torch.optim.SGD(
            model.parameters(), lr=variant.lr, momentum=variant.momentum, weight_decay=variant.weight_decay
        )
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=32, shuffle=True)
    for _ in range(variant.epochs):
        for pictures, targets in loader:
            optimiser.zero_grad()
            functional.cross_entropy(model(pictures), targets, reduction=variant.reduction).backward()
            optimiser.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}, len(labels)


Captured = dict[tuple[str, int], tuple[Weights, int]]


def capture() -> tuple[Captured, str]:
    """Every client's weights after training, by variant and partition, and by what they were run."""
    if importlib.util.find_spec("flwr") is None:
        return _in_process(), "the same client functions in this process (flwr is not installed)"
    return _by_flower()


def _in_process() -> Captured:
    start = initial_weights()
    return {
        (name, place): train_client(start, place, variant)
        for name, variant in VARIANTS.items()
        for place in range(len(PARTITIONS))
    }


def _by_flower() -> tuple[Captured, str]:
    """One simulation; each variant is a round in which all clients start from the same weights."""
    import flwr
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    captured: Captured = {}
    client = ClientApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        place = int(context.node_config["partition-id"])
        content: Any = message.content
        weights = dict(content["arrays"].to_torch_state_dict())
        after, count = train_client(weights, place, VARIANTS[str(content["config"]["variant"])])
        metrics = MetricRecord({"num-examples": count, "partition": place})
        return Message(content=RecordDict({"arrays": ArrayRecord(after), "metrics": metrics}), reply_to=message)

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        for name in VARIANTS:
            record = RecordDict({"arrays": ArrayRecord(initial_weights()), "config": ConfigRecord({"variant": name})})
            nodes = list(grid.get_node_ids())
            messages = [Message(content=record, message_type="train", dst_node_id=node) for node in nodes]
            for reply in grid.send_and_receive(messages):
                content: Any = reply.content
                place, count = int(content["metrics"]["partition"]), int(content["metrics"]["num-examples"])
                captured[name, place] = (dict(content["arrays"].to_torch_state_dict()), count)

    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=len(PARTITIONS),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    return captured, f"Flower {flwr.__version__}'s simulation"
