"""A client mod that attacks the very update it is about to send, and keeps back one that gives too much away."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from flwr.app import Context, Message
from torch import nn

from leakscope.attack import Attack
from leakscope.audits.own_update import OwnLeakage, measure_own_update
from leakscope.defence import Defence
from leakscope.errors import LeakscopeError, UsageError
from leakscope.flower.defending import CallNext, is_training
from leakscope.flower.records import Sends, load_arrays, name_arrays, read_arrays, read_update, refuse
from leakscope.observation.observe import observe
from leakscope.observation.scenario import get_scenario
from leakscope.registry import as_defence, attack_from_spec
from leakscope.tasks import Task
from leakscope.types import Batch, LocalTraining, Loss, Status

_LOG = logging.getLogger("flwr")


def gate_mod(
    threshold_db: float,
    *,
    model: Callable[[], nn.Module],
    data: Callable[[Context], Batch],
    attack: str | Attack = "inverting-gradients",
    local: LocalTraining | None = None,
    defence: str | Defence | None = None,
    scenario: str = "A",
    seconds: float = 60.0,
    inconclusive: Literal["refuse", "send"] = "refuse",
    sends: Sends = "weights",
    loss: Loss | None = None,
    task: Task | None = None,
    seed: int = 0,
) -> GateMod:
    """A mod for `ClientApp(mods=[…])` that refuses to send an update from which too much comes back.

    Every training round waits for the attack. Put this mod before those that change the update: the first of the list
    sees what really leaves the client. An update below the threshold is not proven safe: this attack did not get more.

    Args:
        threshold_db: The highest PSNR at which any example may come back.
        model: Builds the network; its inputs are the pictures of `data`.
        data: The examples that the client trained on in this round, from its Context.
        attack: The attack, or its spec.
        local: How the app trains, as exactly as possible: the attack replays it.
        defence: What another mod does to the update: then the attacker who knows it is run as well, and the worse of
            the two results counts.
        scenario: What the server knows; by default everything, since a gate that errs should err by refusing.
        seconds: The longest time of one attack.
        inconclusive: What happens where no attack is evidence: it diverged, explains nothing or ran out of time.
        sends: What the app's replies hold: the weights after training, or a gradient.
        loss: What the app trains with, by default the task's.
        task: What the network is for, by default classification.
        seed: Of the attack.
    """
    if not math.isfinite(threshold_db) or not seconds > 0:
        raise UsageError(f"gate_mod needs a finite threshold and seconds > 0, got {threshold_db} dB and {seconds} s")
    if inconclusive not in ("refuse", "send"):
        raise UsageError(f"inconclusive must be 'refuse' or 'send', got {inconclusive!r}")
    chosen = attack_from_spec(attack) if isinstance(attack, str) else attack
    knowing = chosen if defence is None else as_defence(defence).adapt(chosen)
    attacks = (chosen,) if knowing == chosen else (chosen, knowing)
    seen_as = _SeenAs(model, data, local, get_scenario(scenario).name, sends, loss, task)
    return GateMod(threshold_db, attacks, seen_as, seconds, inconclusive == "send", seed)


@dataclass(frozen=True)
class _SeenAs:
    """How the client's own update looks to a server."""

    model: Callable[[], nn.Module]
    data: Callable[[Context], Batch]
    local: LocalTraining | None
    scenario: str
    sends: Sends
    loss: Loss | None
    task: Task | None


@dataclass(frozen=True)
class GateMod:
    """What `gate_mod` returns; Flower calls it with every message to the client."""

    threshold_db: float
    attacks: tuple[Attack, ...]
    seen_as: _SeenAs
    seconds: float
    sends_inconclusive: bool
    seed: int

    def __call__(self, message: Message, context: Context, call_next: CallNext) -> Message:
        """Measure the reply to a training message; every other message passes."""
        if not is_training(message):
            return call_next(message, context)
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        try:
            measured = self._measure(message, reply, context)
        except LeakscopeError as error:
            return self._decide_unmeasured(message, reply, f"the leakage gate cannot measure this update: {error}")
        return self._decide(message, reply, measured)

    def _measure(self, message: Message, reply: Message, context: Context) -> list[OwnLeakage]:
        told = self.seen_as
        batch, network = told.data(context), told.model()
        before = name_arrays(read_arrays(message).tensors, network)
        after = name_arrays(read_arrays(reply).tensors, network)
        local = None if told.sends == "gradient" else told.local
        update = read_update(before, after, sends=told.sends, local=local, num_examples=len(batch))
        load_arrays(network, before)
        seen = observe(network, update, scenario=told.scenario, truth=batch, loss=told.loss, task=told.task)
        return [
            measure_own_update(attack, seen, batch, seconds=self.seconds, seed=self.seed) for attack in self.attacks
        ]

    def _decide(self, message: Message, reply: Message, measured: list[OwnLeakage]) -> Message:
        found = [one for one in measured if one.worst_psnr is not None]
        worst = max(found, key=lambda one: one.worst_psnr or 0.0, default=None)
        if worst is not None and worst.worst_psnr is not None and worst.worst_psnr > self.threshold_db:
            # Whatever the status: what came back has leaked.
            return self._refuse(
                message,
                f"the leakage gate kept this update back: {worst.attack} rebuilds an example at "
                f"{worst.worst_psnr:.1f} dB, above {self.threshold_db:g} dB; use a defence, or a stronger one",
            )
        doubtful = next((one for one in measured if one.status is not Status.OK or one.worst_psnr is None), None)
        if doubtful is not None:
            reason = doubtful.reason or "its result cannot be compared in dB"
            return self._decide_unmeasured(
                message,
                reply,
                f"the leakage gate has no evidence that this update is safe: {doubtful.attack}: {reason}",
            )
        _LOG.info("leakage gate: %s, sent", _words(measured))
        return reply

    def _decide_unmeasured(self, message: Message, reply: Message, reason: str) -> Message:
        if not self.sends_inconclusive:
            return self._refuse(message, f"{reason}; a longer time or inconclusive='send' would let it pass")
        _LOG.warning("%s; sent all the same, as was asked for", reason)
        return reply

    @staticmethod
    def _refuse(message: Message, reason: str) -> Message:
        _LOG.warning("%s", reason)
        return refuse(message, reason)


def _words(measured: list[OwnLeakage]) -> str:
    return ", ".join(f"{one.attack} reaches {one.worst_psnr:.1f} dB" for one in measured if one.worst_psnr is not None)
