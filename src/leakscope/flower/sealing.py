"""A client mod that seals what leaves the client, and opens what the server made of all clients' sealed weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from flwr.app import Context, Message, RecordDict

from leakscope.errors import BadInputError, LeakscopeError
from leakscope.flower.defending import CallNext, is_training
from leakscope.flower.own_training import client_number, round_of
from leakscope.flower.records import NUM_EXAMPLES, read_arrays, read_number, refuse, to_record
from leakscope.flower.sealed_records import is_sealed, open_arrays, split_whole, write_sealed
from leakscope.sealed import OpeningKeys, load_keys, seal, to_bytes
from leakscope.sealed.authenticate import sign


def seal_mod(
    keys: str | Path | Callable[[], OpeningKeys],
    *,
    secret: bytes | Callable[[Context], bytes],
    client: str | None = None,
    num_examples_key: str = NUM_EXAMPLES,
) -> SealMod:
    """A mod for `ClientApp(mods=[…])` whose server adds up weights that it cannot read; goes with `SealedStrategy`.

    Put it first: what comes in is opened before all other mods, and what goes out is sealed after them. The weights of
    a reply are sealed with the public key and signed for this client and round. Whatever cannot be sealed is not sent.

    Args:
        keys: The file that `save_keys` wrote, or a function that loads the keys; never on the server's machine.
        secret: What this client signs with, from `client_secret()`, or a function of its Context.
        client: The name that the server knows its secret by; its partition or node number unless given.
        num_examples_key: Where the app says how many examples it trained on; the number is signed along.

    Example:
        >>> app = ClientApp(mods=[seal_mod("keys.json", secret=my_secret)])  # doctest: +SKIP
    """
    return SealMod(keys, secret, client, num_examples_key)


@dataclass(frozen=True)
class SealMod:
    """What `seal_mod` returns; Flower calls it with every message to the client."""

    keys: str | Path | Callable[[], OpeningKeys]
    secret: bytes | Callable[[Context], bytes] = field(repr=False)
    client: str | None = None
    num_examples_key: str = NUM_EXAMPLES

    def __call__(self, message: Message, context: Context, call_next: CallNext) -> Message:
        """Open what the message hands out, pass it on, and seal the arrays of the reply."""
        try:
            keys = load_keys(self.keys) if isinstance(self.keys, str | Path) else self.keys()
            opened = _open(message, keys)
            reply = call_next(opened, context)
            if reply.has_error() or not reply.content.array_records:
                return reply
            return self._seal(message, reply, context, keys)
        # Nothing may go out that anybody can read: what cannot be sealed is not sent.
        except LeakscopeError as error:
            return refuse(message, f"sealing: {error}")

    def _seal(self, message: Message, reply: Message, context: Context, keys: OpeningKeys) -> Message:
        if not is_training(message):
            raise BadInputError("only replies to training are sealed, and this one holds arrays as well; send metrics")
        sent = read_arrays(reply)
        examples = read_number(reply.content.metric_records, self.num_examples_key)
        if examples is None or examples < 1:
            raise BadInputError(f"the reply does not say how many examples it is from ({self.num_examples_key!r} ≥ 1)")
        tensors, whole = split_whole(sent.tensors)
        name = str(client_number(context)) if self.client is None else self.client
        sealed = replace(seal(tensors, keys.public, client=name, round=round_of(message)), num_examples=examples)
        secret = self.secret if isinstance(self.secret, bytes) else self.secret(context)
        reply.content[sent.key] = write_sealed(to_bytes(sign(sealed, secret)), whole)
        return reply


def _open(message: Message, keys: OpeningKeys) -> Message:
    """The message with weights in the place of a sealed total; one in the clear, as in a first round, as it is."""
    sealed = [key for key, record in message.content.array_records.items() if is_sealed(record)]
    if not sealed:
        return message
    # A message of its own: in one process, clients are handed the same records.
    opened = copy.copy(message)
    opened.content = RecordDict(dict(message.content.items()))
    for key in sealed:
        opened.content[key] = to_record(open_arrays(message.content.array_records[key], keys))
    return opened
