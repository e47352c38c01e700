"""Flower's records as tensors: what was handed out, what comes back, and the update between the two.

Arrays keep their names. Those of a list of NumPy arrays have none but their places, "0", "1", …; where a network is at
hand, they get the names of its state in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from flwr.app import Array, ArrayRecord, Error, Message
from torch import Tensor, nn

from leakscope.errors import BadInputError
from leakscope.files import delta
from leakscope.files.names import match_state
from leakscope.files.state_dicts import split_buffers
from leakscope.flower.array_bytes import to_array, to_tensor
from leakscope.text import printable
from leakscope.types import LocalTraining, SharedUpdate, Tensors

# What the arrays of a reply are: the weights after training, what changed of them, or a gradient.
Sends = Literal["weights", "change", "gradient"]
# Flower sends whole traces of a failed client, coloured; their last words hold what happened.
_LONGEST_TRACE, _LONGEST_REASON = 100_000, 150
# Flower's own code for a mod that cannot do its work: the reply then holds a reason and no arrays.
REFUSED = 6
NUM_EXAMPLES = "num-examples"
ROUND = "server-round"
PARTITION = "partition-id"


@dataclass(frozen=True)
class Arrays:
    """The one record of arrays in a message, under its key."""

    key: str
    tensors: dict[str, Tensor]


def read_arrays(message: Message) -> Arrays:
    """The arrays of a message; more than one record of them, or none, is refused as Flower's own mods do."""
    records = message.content.array_records
    if len(records) != 1:
        raise BadInputError(
            f"expected one ArrayRecord in a {message.metadata.message_type} message, got {len(records)}"
        )
    ((key, record),) = records.items()
    return Arrays(key, to_tensors(record))


def to_tensors(record: ArrayRecord) -> dict[str, Tensor]:
    """Tensors by the names of the record; nothing in it can run."""
    return {name: _to_tensor(name, array) for name, array in record.items()}


def _to_tensor(name: str, array: Array) -> Tensor:
    try:
        return to_tensor(array)
    except (TypeError, ValueError) as error:
        raise BadInputError(f"array {name!r} is not an array of numbers that torch knows: {error}") from error


def to_record(tensors: Tensors) -> ArrayRecord:
    """A record of arrays by the names of the tensors."""
    return ArrayRecord({name: to_array(value) for name, value in tensors.items()})


def read_update(
    before: Tensors,
    after: Tensors,
    *,
    sends: Sends = "weights",
    local: LocalTraining | None = None,
    num_examples: int | None = None,
) -> SharedUpdate:
    """The update in a reply: the change of the weights, or what was sent as it is."""
    if sends == "weights":
        return delta(before, after, local=local, num_examples=num_examples)
    parameters, buffers = split_buffers(after)
    whole = {name: value for name, value in parameters.items() if not value.is_floating_point()}
    tensors = {name: value for name, value in parameters.items() if name not in whole}
    if sends == "gradient":
        return SharedUpdate("gradient", tensors, num_examples, None, buffers | whole)
    return SharedUpdate("delta", tensors, num_examples, local, buffers | whole)


def write_update(
    update: SharedUpdate, before: Tensors, after: Tensors, *, sends: Sends = "weights"
) -> dict[str, Tensor]:
    """The arrays of a reply that hold `update` instead of what `after` holds; names and dtypes stay.

    A parameter that the update leaves out does not leave the client: it is as if it had not been trained.
    """
    found = {}
    for name, value in after.items():
        if name in update.buffers:
            found[name] = update.buffers[name].to(value.dtype)
        elif sends != "weights":
            found[name] = update.tensors[name].to(value.dtype) if name in update.tensors else torch.zeros_like(value)
        elif name in update.tensors:
            wide = torch.promote_types(value.dtype, update.tensors[name].dtype)
            found[name] = (before[name].to(wide) + update.tensors[name].to(wide)).to(value.dtype)
        else:
            found[name] = before[name].clone()
    return found


def name_arrays(tensors: Tensors, model: nn.Module, *, private: frozenset[str] = frozenset()) -> dict[str, Tensor]:
    """The same tensors under the names of the model's state, of which `private` is never handed out.

    Names are taken as they are, places as the order of the state, or of the parameters where there are as many, and one
    prefix that a wrapper such as `Sequential(Normalise(…), net)` puts before all names is allowed for.
    """
    state = [name for name in model.state_dict() if name not in private]
    parameters = [name for name, _ in model.named_parameters() if name not in private]
    if [*tensors] == [str(place) for place in range(len(tensors))] and not set(tensors) <= set(state):
        for order in (state, parameters):
            if len(order) == len(tensors):
                return dict(zip(order, tensors.values(), strict=True))
        raise BadInputError(
            f"{len(tensors)} arrays without names do not fit a network with {len(state)} tensors of which "
            f"{len(parameters)} are parameters; send all of its state in order, or arrays with names"
        )
    mapping = match_state(list(tensors), state, optional=[name for name in state if name not in parameters])
    return {mapping[name]: value for name, value in tensors.items() if name in mapping}


def load_arrays(model: nn.Module, tensors: Tensors, *, private: frozenset[str] = frozenset()) -> nn.Module:
    """Write what was handed out into a network of one's own, which is returned."""
    state = model.state_dict()
    with torch.no_grad():
        for name, value in name_arrays(tensors, model, private=private).items():
            if state[name].shape != value.shape:
                raise BadInputError(
                    f"array {name!r} has shape {list(value.shape)}, the network {list(state[name].shape)}; "
                    "build the network that the server hands out"
                )
            state[name].copy_(value)
    return model


def read_number(records: Mapping[str, Mapping[str, object]], key: str) -> int | None:
    """A whole number from the records of a message, wherever it stands; None where there is none."""
    for record in records.values():
        value = record.get(key)
        if isinstance(value, (int, float)) and float(value).is_integer():
            return int(value)
    return None


def refuse(message: Message, reason: str) -> Message:
    """The reply of a client that sends no arrays, and says why."""
    return Message(Error(code=REFUSED, reason=reason), reply_to=message)


def tell_error(message: Message) -> str:
    """Why a client sent nothing, in one line: of a long trace its end, which names the cause."""
    told = printable(" ".join(str(message.error.reason).split()), most=_LONGEST_TRACE)
    return told if len(told) <= _LONGEST_REASON else f"… {told[-_LONGEST_REASON:]}"
