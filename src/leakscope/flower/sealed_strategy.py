"""Federated averaging of weights that the server cannot read: it holds the public key and adds up ciphertexts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch import Tensor

from leakscope.errors import BadInputError, CiphertextError, UsageError
from leakscope.federated.faults import Failure
from leakscope.flower.checking import check_arrays, check_completed, check_share, log_failures
from leakscope.flower.records import read_number, tell_error, to_tensors
from leakscope.flower.sealed_records import describe, is_sealed, read_sealed, split_whole, write_sealed
from leakscope.sealed import SealingKey, check_update, combine, from_bytes, to_bytes
from leakscope.sealed_update import SealedTensor
from leakscope.types import SealedUpdate


class SealedStrategy(FedAvg):
    """Flower's FedAvg over sealed weights, for clients with `seal_mod`.

    The first round hands out the initial arrays; every later one the sealed total of the round before, which clients
    open. A reply that is in the clear, truncated, replayed, of another key, of another network, not signed by one of
    the clients, or that does not come, is named in `failures` and left out; too few that are sound end the training.

    Other strategies than the weighted mean would have to read what they combine. So would evaluation at the server and
    `Capture`, to which sealed updates are closed. Numbers of examples, other metrics and arrays of whole numbers travel
    in the clear. Nothing here protects clients from one that hands its keys to the server.

    Args:
        public: The key that sums are made with. Keys that open are refused.
        secrets: What each client signs with, by its name or number.
        min_completed: Share of the clients asked that must send a sound reply.
        options: Those of Flower's FedAvg.
    """

    def __init__(
        self,
        public: SealingKey,
        secrets: Mapping[str, bytes] | Mapping[int, bytes],
        *,
        min_completed: float = 1.0,
        **options: Any,
    ) -> None:
        """Add up with `public`."""
        super().__init__(**options)
        if not isinstance(public, SealingKey):
            raise UsageError(
                f"SealedStrategy needs the public key, got {type(public).__name__}; give keys.public, and keep what "
                "opens away from the server"
            )
        check_share("SealedStrategy", min_completed)
        self._public, self._min_completed = public, min_completed
        self._secrets = {str(client): secret for client, secret in secrets.items()}
        self._asked: tuple[int, ...] = ()
        self._expected = _Expected((), {})
        self.failures: dict[int, tuple[Failure, ...]] = {}
        self.weights: dict[int, dict[str, float]] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As FedAvg does; who is asked, and what a reply must hold, is remembered."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self._asked = tuple(message.metadata.dst_node_id for message in messages)
        self._expected = self._expect(arrays)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The sealed weighted mean of the sound replies.

        Raises:
            RoundFailedError: Too few are left; the message names the clients with reasons.
        """
        found, failures = self._admit(server_round, list(replies))
        self.failures[server_round] = tuple(failures)
        log_failures(server_round, failures)
        check_completed(
            server_round, sound=len(found), asked=len(self._asked), share=self._min_completed, failures=failures
        )
        # In the order of names: what a sum comes to must not depend on who answered first.
        found.sort(key=lambda one: one.update.client)
        examples = [one.examples for one in found]
        weights = [count / sum(examples) for count in examples]
        updates = [one.update for one in found]
        total = combine(updates, weights, secrets=self._secrets, round=server_round)
        self.weights[server_round] = {one.client: weight for one, weight in zip(updates, weights, strict=True)}
        metrics = self.train_metrics_aggr_fn([one.reply.content for one in found], self.weighted_by_key)
        return write_sealed(to_bytes(total), _largest([one.whole for one in found])), metrics

    def _expect(self, arrays: ArrayRecord) -> _Expected:
        if is_sealed(arrays):
            handed_out = read_sealed(arrays)
            return _Expected(from_bytes(handed_out.message, self._public).contents, handed_out.whole)
        tensors, whole = split_whole(to_tensors(arrays))
        return _Expected(describe(tensors), whole)

    def _admit(self, server_round: int, replies: list[Message]) -> tuple[list[_Sound], list[Failure]]:
        """The sound replies, and everybody else who was asked or answered."""
        heard = {reply.metadata.src_node_id for reply in replies}
        failures = [Failure(node, "it sent no reply in time") for node in self._asked if node not in heard]
        found: dict[str, _Sound] = {}
        for reply in replies:
            one = self._try_to_read(reply, server_round, known=found)
            if isinstance(one, Failure):
                failures.append(one)
            else:
                found[one.update.client] = one
        return list(found.values()), failures

    def _try_to_read(self, reply: Message, server_round: int, *, known: Mapping[str, _Sound]) -> _Sound | Failure:
        try:
            one = self._read(reply, server_round)
            if one.update.client in known:
                raise CiphertextError(
                    f"the update of client {one.update.client!r} was replayed: it came twice, and counts once",
                    client=one.update.client,
                    reason="replayed",
                )
            return one
        except BadInputError as error:
            return Failure.of(reply.metadata.src_node_id, error)

    def _read(self, reply: Message, server_round: int) -> _Sound:
        if reply.has_error():
            raise BadInputError(tell_error(reply))
        if reply.metadata.src_node_id not in self._asked:
            raise BadInputError("it was handed nothing in this round")
        records = list(reply.content.array_records.values())
        if len(records) != 1 or len(reply.content.metric_records) != 1:
            raise BadInputError("expected one record of arrays and one of metrics")
        sent = read_sealed(records[0])
        update = from_bytes(sent.message, self._public, secrets=self._secrets, round=server_round)
        if (update.kind, update.contents) != ("tensors", self._expected.contents):
            raise CiphertextError(
                f"the update of client {update.client!r} holds other tensors than were handed out",
                client=update.client,
                reason="malformed",
            )
        check_update(update, self._public, secrets=self._secrets, round=server_round)
        check_arrays(sent.whole, self._expected.whole)
        told = read_number(reply.content.metric_records, self.weighted_by_key)
        if update.num_examples is None or update.num_examples < 1 or told != update.num_examples:
            raise BadInputError(f"it says {told} examples beside what is sealed, and signed {update.num_examples}")
        return _Sound(reply, update, update.num_examples, sent.whole)


@dataclass(frozen=True)
class _Expected:
    """What every reply of a round must hold."""

    contents: tuple[SealedTensor, ...]
    whole: dict[str, Tensor]


@dataclass(frozen=True)
class _Sound:
    """A reply that counts."""

    reply: Message
    update: SealedUpdate
    examples: int
    whole: dict[str, Tensor]


def _largest(counters: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Of whole numbers, which count something, the largest, as in rounds in process."""
    return {name: torch.stack([one[name] for one in counters]).amax(0) for name in counters[0]}
