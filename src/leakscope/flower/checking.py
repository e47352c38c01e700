"""A strategy around any other that lets only sound replies through, and names those that are not."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from leakscope.errors import BadInputError, RoundFailedError, UsageError
from leakscope.federated.faults import Failure
from leakscope.flower.records import NUM_EXAMPLES, read_arrays, read_number, tell_error, to_tensors
from leakscope.flower.wrapping import WrappedStrategy
from leakscope.types import Tensors

_LOG = logging.getLogger("flwr")
_REASONS_SHOWN = 3


class CheckedStrategy(WrappedStrategy):
    """Any strategy of Flower's Message API that averages sound replies only.

    Flower's own strategies average what comes: NaN from one client is NaN for all, and a client that failed is a line
    in the log. Here a reply with an error, with other arrays or shapes than were handed out, with NaN or Inf, or
    without a number of examples is named and left out, a client that did not answer is named, and a round that too few
    clients complete ends the training.

    Args:
        strategy: What trains.
        min_completed: Share of the clients asked that must send a sound reply.
        num_examples_key: Where clients say how many examples they trained on.
    """

    def __init__(self, strategy: Strategy, *, min_completed: float = 1.0, num_examples_key: str = NUM_EXAMPLES) -> None:
        """Check what `strategy` averages."""
        super().__init__(strategy)
        check_share("CheckedStrategy", min_completed)
        self._min_completed, self._key = min_completed, num_examples_key
        self.failures: dict[int, tuple[Failure, ...]] = {}
        self._asked: dict[int, ArrayRecord | None] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy does; who is asked, and what is handed out, is remembered."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._asked = {
            message.metadata.dst_node_id: next(iter(message.content.array_records.values()), None)
            for message in messages
        }
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the sound replies on.

        Raises:
            RoundFailedError: Too few are left; the message names the clients with reasons.
        """
        received = list(replies)
        heard = {reply.metadata.src_node_id for reply in received}
        failures = [Failure(node, "it sent no reply in time") for node in self._asked if node not in heard]
        sound = []
        handed_out = _read_once(self._asked)
        for reply in received:
            failure = self._find_fault(reply, handed_out)
            sound += [reply] if failure is None else []
            failures += [] if failure is None else [failure]
        self.failures[server_round] = tuple(failures)
        log_failures(server_round, failures)
        check_completed(
            server_round, sound=len(sound), asked=len(self._asked), share=self._min_completed, failures=failures
        )
        return self.strategy.aggregate_train(server_round, sound)

    def _find_fault(self, reply: Message, handed_out: dict[int, dict[str, Tensor]]) -> Failure | None:
        node = reply.metadata.src_node_id
        try:
            if reply.has_error():
                raise BadInputError(tell_error(reply))
            if node not in handed_out:
                raise BadInputError("it was handed nothing in this round")
            check_arrays(read_arrays(reply).tensors, handed_out[node])
            examples = read_number(reply.content.metric_records, self._key)
            if examples is None or examples < 1:
                raise BadInputError(f"it does not say on how many examples it trained ({self._key!r} ≥ 1)")
        except BadInputError as error:
            return Failure.of(node, error)
        return None


def _read_once(records: dict[int, ArrayRecord | None]) -> dict[int, dict[str, Tensor]]:
    """What each node was handed; nearly always the same record for all."""
    different = {id(record): record for record in records.values() if record is not None}
    read = {key: to_tensors(record) for key, record in different.items()}
    return {node: read[id(record)] for node, record in records.items() if record is not None}


def check_arrays(arrays: Tensors, like: Tensors) -> None:
    """Refuse arrays of other names, shapes or kinds of numbers than `like`, and such as hold NaN or Inf."""
    if odd := sorted(set(arrays) ^ set(like)):
        raise BadInputError(f"it sends other arrays than it was handed: {', '.join(odd[:3])} on one side only")
    for name, value in arrays.items():
        expected = like[name]
        if value.shape != expected.shape or value.is_floating_point() != expected.is_floating_point():
            raise BadInputError(
                f"{name} should be {list(expected.shape)} of {expected.dtype}, got {list(value.shape)} of {value.dtype}"
            )
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise BadInputError(f"{name} holds NaN or Inf")


def check_share(what: str, min_completed: float) -> None:
    """Refuse what is no share of the clients."""
    if not 0 < min_completed <= 1:
        raise UsageError(f"{what} needs 0 < min_completed ≤ 1, a share of the clients, got {min_completed}")


def log_failures(server_round: int, failures: Sequence[Failure]) -> None:
    """Name those who do not count in Flower's log."""
    for failure in failures:
        _LOG.warning("round %d: client %d is left out: %s", server_round, failure.client, failure.reason)


def check_completed(server_round: int, *, sound: int, asked: int, share: float, failures: Sequence[Failure]) -> None:
    """Fail a round that fewer than `share` of those asked completed, with names and reasons."""
    needed = max(1, math.ceil(share * asked - 1e-9))
    if sound >= needed:
        return
    told = [f"client {one.client}: {one.reason}" for one in failures]
    more = f" and {len(told) - _REASONS_SHOWN} more" if len(told) > _REASONS_SHOWN else ""
    raise RoundFailedError(
        f"round {server_round}: {sound} of {asked} clients completed it, at least {needed} must "
        f"(min_completed={share:g}); {'; '.join(told[:_REASONS_SHOWN])}{more}"
    )
