"""What is wrong with a client's reply, named before it can count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakscope.counts import MOST_EXAMPLES, check_count
from leakscope.defence import Hardened
from leakscope.errors import BadInputError
from leakscope.federated.client import Reply
from leakscope.federated.experiment import Experiment
from leakscope.text import printable
from leakscope.types import SharedUpdate, Tensors

_LONGEST_REASON = 300


@dataclass(frozen=True)
class Failure:
    """A client that does not count in a round, and why."""

    client: int
    reason: str

    @classmethod
    def of(cls, client: int, error: BaseException) -> Failure:
        """A failure from what was raised on behalf of the client."""
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return cls(client, printable(" ".join(told.split()), most=_LONGEST_REASON))


def check_reply(reply: Reply, network: Hardened, experiment: Experiment, *, client: int, round: int) -> None:
    """Refuse a reply that is not what client `client` should send in this round.

    Names, shapes, kind and finiteness are checked against the network. Of a sealed update nothing can be seen; what the
    aggregator opens is checked in its place.

    Raises:
        BadInputError: The message says what is wrong.
    """
    if not isinstance(reply, Reply):
        raise BadInputError(f"expected a Reply, got a {type(reply).__name__}")
    if (reply.client, reply.round) != (client, round):
        raise BadInputError(
            f"expected the reply of client {client} to round {round}, got that of client {reply.client} to round "
            f"{reply.round}; a reply counts once and for its own round"
        )
    check_count(reply.num_examples, "Reply.num_examples", most=MOST_EXAMPLES)
    if not math.isfinite(reply.train_loss):
        raise BadInputError(f"its training loss is {reply.train_loss}; lower the learning rate or check its data")
    if isinstance(reply.update, SharedUpdate):
        check_mean(reply.update, network, experiment)
    public = {name: value for name, value in network.client.named_buffers() if name not in network.private}
    _check_tensors(reply.buffers, public, what="buffer")


def check_mean(update: SharedUpdate, network: Hardened, experiment: Experiment) -> None:
    """Refuse an update of the wrong kind, of tensors that the network does not share, or with NaN or Inf in it."""
    if update.kind != experiment.kind:
        raise BadInputError(
            f"expected a {experiment.kind}, got a {update.kind}; clients and server must run the same experiment"
        )
    _check_tensors(update.tensors, _shared_parameters(network.client, network.private), what="parameter")


def _shared_parameters(model: nn.Module, private: frozenset[str]) -> dict[str, Tensor]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad and name not in private}


def _check_tensors(given: Tensors, known: Tensors, *, what: str) -> None:
    for name, value in given.items():
        if name not in known:
            raise BadInputError(f"it sends {name!r}, which is not a shared {what} of the network")
        expected = known[name]
        if value.shape != expected.shape or value.is_floating_point() != expected.is_floating_point():
            raise BadInputError(
                f"{name} should be {list(expected.shape)} of {expected.dtype}, got {list(value.shape)} of {value.dtype}"
            )
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise BadInputError(f"{name} holds NaN or Inf")


def find_odd_ones(replies: Sequence[Reply]) -> list[Failure]:
    """Clients that share other tensors than most do; of equally many the larger set of tensors counts as usual."""
    failures = []
    for what in ("update", "buffers"):
        names = {reply.client: _names(reply, what) for reply in replies}
        counts = Counter(names.values())
        if len(counts) > 1:
            usual = max(counts, key=lambda one: (counts[one], len(one), sorted(one)))
            failures += [
                Failure(client, f"it sends other tensors than the rest: {', '.join(sorted(own ^ usual)[:5])}")
                for client, own in names.items()
                if own != usual
            ]
    return list({one.client: one for one in failures}.values())


def _names(reply: Reply, what: str) -> frozenset[str]:
    if what == "buffers":
        return frozenset(reply.buffers)
    # All sealed updates look alike from outside; beside open ones they are another kind of thing.
    return frozenset(reply.update.tensors) if isinstance(reply.update, SharedUpdate) else frozenset({"(sealed)"})
