"""A strategy of Flower's around another one: what both `Capture` and `CheckedStrategy` leave as it is."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy


class WrappedStrategy(Strategy):
    """Evaluates and describes itself as `strategy` does; training is for subclasses to write."""

    def __init__(self, strategy: Strategy) -> None:
        """Put this around `strategy`."""
        super().__init__()
        self.strategy = strategy

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy does."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the strategy does."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """What the strategy says of itself."""
        self.strategy.summary()
