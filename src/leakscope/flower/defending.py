"""A defence as a Flower client mod: what leaves the client is what the defence made of its update."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from flwr.app import Context, Message, MetricRecord, RecordDict
from torch import Tensor

from leakscope.defence import Defence
from leakscope.errors import BadInputError, LeakscopeError, UnsuitableError, UsageError
from leakscope.flower.own_training import OwnTraining, client_number, round_of, take_part
from leakscope.flower.records import (
    NUM_EXAMPLES,
    Sends,
    read_arrays,
    read_update,
    refuse,
    to_record,
    to_tensors,
    write_update,
)
from leakscope.registry import as_defence
from leakscope.rng import generator
from leakscope.tensors import all_finite
from leakscope.types import SealedUpdate, SharedUpdate, Tensors

CallNext = Callable[[Message, Context], Message]
# What happens to running statistics and counters: they go out as the app sends them, or stay with the client.
Buffers = Literal["send", "keep"]


def defence_mod(
    defence: Defence | str,
    *,
    seed: int | None = None,
    training: OwnTraining | None = None,
    sends: Sends = "weights",
    buffers: Buffers = "send",
) -> DefenceMod:
    """A mod for `ClientApp(mods=[…])` that applies `defence` to what every training round sends.

    A defence that changes the finished update works on any app. One that acts inside the training, on pictures, single
    gradients or the network, cannot be added from outside: give `training`, which then takes the place of the app's
    own training function.

    Args:
        defence: The defence, or its spec such as "prune:fraction=0.9" or "clip:norm=1+gaussian-noise:sigma=0.01".
        seed: None draws noise that nobody can repeat, as real clients must. A number makes a simulation repeatable.
        training: The client's training, for defences that act inside it.
        sends: What the app's replies hold: the weights after training, what changed of them, or a gradient.
        buffers: "keep" sends back the running statistics that were handed out, instead of the client's own: they are
            statistics of its examples, and most defences leave them as they are.

    Example:
        >>> app = ClientApp(mods=[defence_mod("prune:fraction=0.9")])  # doctest: +SKIP
    """
    chosen = as_defence(defence)
    if training is None and chosen.acts_in_training():
        raise UsageError(
            f"{chosen.name} acts inside the client's training, which a mod does not see; give "
            "training=OwnTraining(model=…, data=…, local=…), which then trains in place of the app's own function"
        )
    if training is not None and (training.local is None) != (sends == "gradient"):
        raise UsageError(
            f"OwnTraining(local={training.local}) sends {'a gradient' if training.local is None else 'weights'}, "
            f"got sends={sends!r}; give both alike"
        )
    return DefenceMod(chosen, seed, training, sends, buffers)


@dataclass(frozen=True)
class DefenceMod:
    """What `defence_mod` returns; Flower calls it with every message to the client."""

    defence: Defence
    seed: int | None = None
    training: OwnTraining | None = None
    sends: Sends = "weights"
    buffers: Buffers = "send"

    def __call__(self, message: Message, context: Context, call_next: CallNext) -> Message:
        """Defend the reply to a training message; every other message passes."""
        if not is_training(message):
            return call_next(message, context)
        try:
            if self.training is None:
                return self._defend(message, context, call_next)
            return self._train(message, context, self.training)
        # Nothing may go out undefended: what cannot be defended is not sent.
        except LeakscopeError as error:
            return refuse(message, f"{self.defence.name}: {error}")

    def _defend(self, message: Message, context: Context, call_next: CallNext) -> Message:
        before = read_arrays(message).tensors
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        sent = read_arrays(reply)
        if self.sends == "weights" and before.keys() != sent.tensors.keys():
            raise BadInputError("the reply holds other arrays than were handed out; send back arrays of the same names")
        after = sent.tensors if self.buffers == "send" else _with_buffers_of(before, sent.tensors)
        update = read_update(before, after, sends=self.sends)
        # What stays with the client is not the defence's to judge.
        shown = update if self.buffers == "send" else replace(update, buffers={})
        defended, kept = self._apply(shown, message, context)
        whole = defended if self.buffers == "send" else replace(defended, buffers=update.buffers)
        arrays = write_update(whole, before, after, sends=self.sends)
        if not all_finite({name: value for name, value in arrays.items() if value.is_floating_point()}):
            raise BadInputError("the client's update holds NaN or Inf; lower the learning rate or check the data")
        self._keep(kept, context)
        reply.content[sent.key] = to_record(arrays)
        return reply

    def _apply(self, update: SharedUpdate, message: Message, context: Context) -> tuple[SharedUpdate, Tensors]:
        hooks, kept = self.defence.hooks(), self._held_back(context)
        rng = generator(self._seed(), "flower", client_number(context), round_of(message), _digest(update.tensors))
        sent: SharedUpdate | SealedUpdate = update if hooks.update is None else hooks.update(update, rng)
        if hooks.feedback is not None and isinstance(sent, SharedUpdate):
            sent, kept = hooks.feedback(sent, kept, rng)
        return _in_the_open(sent, self.defence), kept

    def _train(self, message: Message, context: Context, training: OwnTraining) -> Message:
        received = read_arrays(message)
        experiment = training.experiment(self.defence, seed=self._seed())
        reply = take_part(training.client(context), message, context, model=training.model(), experiment=experiment)
        update = replace(_in_the_open(reply.update, self.defence), buffers=self._statistics(reply.buffers))
        after = received.tensors if self.sends == "weights" else {**update.tensors, **update.buffers}
        arrays = write_update(update, received.tensors, after, sends=self.sends)
        metrics = MetricRecord({NUM_EXAMPLES: reply.num_examples, "train_loss": reply.train_loss})
        return Message(RecordDict({received.key: to_record(arrays), "metrics": metrics}), reply_to=message)

    def _statistics(self, buffers: Tensors) -> Tensors:
        return buffers if self.buffers == "send" else {}

    def _seed(self) -> int:
        return secrets.randbits(62) if self.seed is None else self.seed

    @property
    def _state_key(self) -> str:
        return f"leakscope.held-back.{self.defence.name}"

    def _held_back(self, context: Context) -> dict[str, Tensor]:
        kept = context.state.array_records.get(self._state_key)
        return {} if kept is None else to_tensors(kept)

    def _keep(self, held_back: Tensors, context: Context) -> None:
        if held_back:
            context.state[self._state_key] = to_record(held_back)


def is_training(message: Message) -> bool:
    """Whether a message asks for training, under whatever action."""
    return message.metadata.message_type.partition(".")[0] == "train"


def _with_buffers_of(before: Tensors, after: Tensors) -> dict[str, Tensor]:
    buffers = read_update(before, after, sends="change").buffers
    return {name: before[name] if name in buffers else value for name, value in after.items()}


def _in_the_open(update: SharedUpdate | SealedUpdate, defence: Defence) -> SharedUpdate:
    if isinstance(update, SealedUpdate):
        raise UnsuitableError(
            f"{defence.name} seals the update, which is no defence_mod's to send; put seal_mod before the other mods, "
            "and SealedStrategy at the server"
        )
    return update


def _digest(tensors: Tensors) -> str:
    """A fingerprint of what only the client knows: with it, nobody who knows the seed can repeat the noise."""
    found = hashlib.sha256()
    for name, value in tensors.items():
        found.update(name.encode())
        found.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
