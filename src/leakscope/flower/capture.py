"""A strategy around any other that keeps every client's update as a file, and has a sample of each round attacked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import Tensor, nn

from leakscope.audits.captured import CapturedUpdate, build_network
from leakscope.errors import BadInputError, LeakscopeError, UsageError
from leakscope.files import private_folder, save_update, write_tensors
from leakscope.flower.defending import CallNext, is_training
from leakscope.flower.leakage import LeakageLog, RoundCounts
from leakscope.flower.records import (
    NUM_EXAMPLES,
    PARTITION,
    Sends,
    name_arrays,
    read_arrays,
    read_number,
    read_update,
    tell_error,
    to_tensors,
)
from leakscope.flower.round_audit import RoundAudit, RoundAuditor, name_function
from leakscope.flower.sealed_records import is_sealed
from leakscope.flower.wrapping import WrappedStrategy
from leakscope.types import LocalTraining

_LOG = logging.getLogger("flwr")
MODEL = "model.safetensors"
UPDATES = "updates"


class Capture(WrappedStrategy):
    """Any strategy of Flower's Message API, watched.

    Every round has a folder: `round-0001/model.safetensors` is what was handed out, `round-0001/updates/` holds one
    file for each client, which `leakscope attack` reads. `leakage.csv` and `leakage.json` hold what the audit found.

    Args:
        strategy: What trains; it gets every message as it would without this one.
        folder: Where files go: one without rounds of an earlier run. It is as private as what clients send.
        model: Builds the network, or `package.module:function` for it; names arrays that have none. The audit needs it.
        local: How clients train, kept with every update; None where it is not known.
        audit: What is attacked of every round; None captures only.
        sends: What replies hold: the weights after training, or a gradient.
        num_examples_key: Where clients say how many examples they trained on.

    Example:
        >>> strategy = Capture(FedAvg(), "runs/captured")  # doctest: +SKIP
    """

    def __init__(
        self,
        strategy: Strategy,
        folder: str | Path,
        *,
        model: str | Callable[[], nn.Module] | None = None,
        local: LocalTraining | None = None,
        audit: RoundAudit | None = None,
        sends: Sends = "weights",
        num_examples_key: str = NUM_EXAMPLES,
    ) -> None:
        """Watch `strategy`; nothing is written before the first round."""
        super().__init__(strategy)
        if audit is not None and model is None:
            raise UsageError("an audit needs model=, a function that builds the network")
        # Only the audit's process has to find the function again.
        self._model = "" if audit is None or model is None else name_function(model, "model")
        self._network = _build(model)
        self._folder, self._local, self._key = _new_folder(folder), local, num_examples_key
        self._sends: Sends = sends
        self._audit = audit
        self.log = LeakageLog(self._folder)
        self._auditor = (
            None
            if audit is None
            else RoundAuditor(self.log, seconds=audit.seconds, finish_seconds=audit.finish_seconds)
        )
        self._handed_out: dict[int, ArrayRecord] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the strategy does; what each client gets is remembered until its reply is here."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        for message in messages:
            records = list(message.content.array_records.values())
            if len(records) == 1:
                self._handed_out[message.metadata.dst_node_id] = records[0]
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Write what came back, hand a sample to the audit, and let the strategy go on."""
        received = list(replies)
        try:
            self._capture(server_round, received)
        # A full disk is no reason to stop a training: it is said, and the round counts as not captured.
        except (LeakscopeError, OSError) as error:
            _LOG.warning("capture: round %d was not written: %s", server_round, error)
        self._handed_out.clear()
        return self.strategy.aggregate_train(server_round, received)

    def summary(self) -> None:
        """Say what is watched, then what the strategy says of itself."""
        audited = "no audit" if self._audit is None else f"{self._audit.attack} on {self._audit.sample} of each round"
        _LOG.info("\t├──> leakscope captures every update, %s", audited)
        self.strategy.summary()

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """Train as the strategy's `start` does, then attack rounds that still wait, for `finish_seconds` at most."""
        try:
            return super().start(*args, **kwargs)
        finally:
            self.close()

    def close(self) -> None:
        """Attack what still waits, within the audit's time, and name what is left."""
        if self._auditor is not None:
            self._auditor.close()

    def _capture(self, turn: int, replies: list[Message]) -> None:
        counts = RoundCounts(turn, replies=len(replies))
        folder = private_folder(self._folder / f"round-{turn:04d}")
        written = _Weights(folder)
        saved = [self._try_to_save(reply, folder, written) for reply in replies]
        updates = [one for one in saved if isinstance(one, CapturedUpdate)]
        counts.failed = [one for one in saved if not isinstance(one, CapturedUpdate)]
        counts.captured = len(updates)
        self.log.capture(counts)
        if self._auditor is not None and self._audit is not None and updates:
            self._auditor.submit(turn, self._audit.request(updates, model=self._model, turn=turn))

    def _try_to_save(self, reply: Message, folder: Path, written: _Weights) -> CapturedUpdate | dict[str, Any]:
        """The file of an update, or who sent none and why: one bad reply does not hide the others."""
        try:
            return self._save(reply, folder, written)
        except (BadInputError, UsageError) as error:
            return {"client": _client_of(reply), "reason": str(error)}

    def _save(self, reply: Message, folder: Path, written: _Weights) -> CapturedUpdate:
        if reply.has_error():
            raise BadInputError(f"the client sent no update: {tell_error(reply)}")
        if any(is_sealed(record) for record in reply.content.array_records.values()):
            raise BadInputError("the update is sealed: the server cannot read it, and there is nothing to attack")
        client, node = _client_of(reply), reply.metadata.src_node_id
        if node not in self._handed_out:
            raise BadInputError("the client was handed nothing in this round")
        record = self._handed_out[node]
        before, after = written.read(record, self._named), self._named(read_arrays(reply).tensors)
        examples = read_number(reply.content.metric_records, self._key)
        local = None if self._sends == "gradient" else self._local
        update = read_update(before, after, sends=self._sends, local=local, num_examples=examples)
        name = f"client-{client}"
        weights = written.write(record, before, name)
        path = save_update(folder / UPDATES / f"{name}.safetensors", update)
        partition = read_number(reply.content.metric_records, PARTITION)
        return CapturedUpdate(str(path), str(weights), name, partition)

    def _named(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return tensors if self._network is None else name_arrays(tensors, self._network)


@dataclass
class _Weights:
    """The weights of a round: one file, and one more for each client that was handed others."""

    folder: Path
    record: ArrayRecord | None = None
    first: dict[str, Tensor] = field(default_factory=dict)

    def read(self, record: ArrayRecord, name: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> dict[str, Tensor]:
        """The tensors of a record, read once where all clients were handed the same."""
        if self.record is None:
            self.record, self.first = record, name(to_tensors(record))
            write_tensors(self.folder / MODEL, self.first)
        return self.first if self.record is record else name(to_tensors(record))

    def write(self, record: ArrayRecord, tensors: dict[str, Tensor], name: str) -> Path:
        """The file of what a client was handed."""
        if self.record is record:
            return self.folder / MODEL
        return write_tensors(self.folder / f"model-{name}.safetensors", tensors)


def partition_mod(message: Message, context: Context, call_next: CallNext) -> Message:
    """A client mod for simulations: the reply says which partition its client holds, so that truths can be found."""
    reply = call_next(message, context)
    if is_training(message) and reply.has_content() and PARTITION in context.node_config:
        for record in reply.content.metric_records.values():
            record[PARTITION] = int(context.node_config[PARTITION])
    return reply


def _client_of(reply: Message) -> int:
    """The partition where the client says it, else the number of its node."""
    found = None if reply.has_error() else read_number(reply.content.metric_records, PARTITION)
    return reply.metadata.src_node_id if found is None else found


def _new_folder(folder: str | Path) -> Path:
    """A folder without captured rounds: those of another run beside these would be attacked as if they were of one."""
    path = Path(folder)
    if any(path.glob("round-*")):
        raise UsageError(f"{path.name!r} holds captured rounds of an earlier run; choose another folder, or remove it")
    return path


def _build(model: str | Callable[[], nn.Module] | None) -> nn.Module | None:
    if model is None:
        return None
    return build_network(model) if isinstance(model, str) else model()
