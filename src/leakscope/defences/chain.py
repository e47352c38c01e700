"""Several defences, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

from torch import Generator, Tensor, nn

from leakscope.attack import Attack
from leakscope.defence import ClientHooks, Defence, Guarantee, Hardened, StepContext
from leakscope.errors import UnsuitableError, UsageError
from leakscope.types import Batch, LocalTraining, SealedUpdate, SharedUpdate, Tensors

BatchHook = Callable[[Batch, Generator], Batch]
GradientHook = Callable[[dict[str, Tensor], StepContext], dict[str, Tensor]]
UpdateHook = Callable[[SharedUpdate, Generator], SharedUpdate | SealedUpdate]
FeedbackHook = Callable[[SharedUpdate, Tensors, Generator], tuple[SharedUpdate | SealedUpdate, Tensors]]


@dataclass(frozen=True)
class Chain(Defence):
    """Applies `parts` in order; an empty chain does nothing."""

    parts: tuple[Defence, ...]
    name: str = field(init=False)
    paper: str = field(init=False)
    changes_network: bool = field(init=False)
    strong_attacks: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        strong = dict.fromkeys(attack for part in self.parts for attack in part.strong_attacks)
        of_parts = {
            "name": "+".join(part.name for part in self.parts) or "none",
            "paper": "; ".join(part.paper for part in self.parts),
            "changes_network": any(part.changes_network for part in self.parts),
            "strong_attacks": tuple(strong),
        }
        for attribute, value in of_parts.items():
            object.__setattr__(self, attribute, value)

    def harden(self, model: nn.Module, *, seed: int = 0) -> Hardened:
        """Harden with each part in turn: what the client has of one goes into the next."""
        found = reduce(lambda current, part: _harden_again(current, part, seed), self.parts, Hardened(model, model))
        names = {*(name for name, _ in found.client.named_parameters()), *dict(found.client.named_buffers())}
        if lost := sorted(found.private - names):
            raise UnsuitableError(
                f"in {self.name} a later part renames {lost[0]!r}, which must stay with the client; "
                "put the part that keeps it last"
            )
        return found

    def hooks(self) -> ClientHooks:
        """In each of the four places the first part acts first."""
        each = [part.hooks() for part in self.parts]
        remembers = any(one.feedback for one in each)
        return ClientHooks(
            batch=_batch([one.batch for one in each if one.batch]),
            example_gradients=_gradients([one.example_gradients for one in each if one.example_gradients]),
            gradient=_gradients([one.gradient for one in each if one.gradient]),
            # One place for both kinds, or what comes after a part that remembers would come before it.
            update=None if remembers else _update([one.update for one in each if one.update]),
            feedback=_feedback(each) if remembers else None,
        )

    def acts_in_training(self) -> bool:
        """Where any part does."""
        return any(part.acts_in_training() for part in self.parts)

    def guarantee(
        self, *, examples: int, batch_size: int, steps: int, local: LocalTraining | None = None
    ) -> Guarantee | None:
        """That of the one part that has one, where no other part acts between its clipping and its noise.

        What acts on batches may mix examples, so that nothing is claimed then.
        """
        each = [
            part.guarantee(examples=examples, batch_size=batch_size, steps=steps, local=local) for part in self.parts
        ]
        proven = [(place, one) for place, one in enumerate(each) if one is not None]
        if len(proven) != 1:
            return None
        place, found = proven[0]
        hooks = [part.hooks() for part in self.parts]
        others = hooks[:place] + hooks[place + 1 :]
        mixed = any(one.gradient for one in hooks[:place]) or any(one.batch or one.example_gradients for one in others)
        return None if mixed and found.unit == "example" else found

    def unsealed(self) -> Defence | None:
        """The parts before the seal: after it there is nothing that a part could act on."""
        place = next((place for place, part in enumerate(self.parts) if part.unsealed() is not None), None)
        if place is None:
            return None
        if place + 1 < len(self.parts):
            raise UsageError(
                f"in {self.name} {self.parts[place].name!r} comes before {self.parts[place + 1].name!r}, which cannot "
                "act on a sealed update; put what seals last"
            )
        return Chain(self.parts[:place])

    def adapt(self, attack: Attack) -> Attack:
        """The attacker knows every part."""
        return reduce(lambda current, part: part.adapt(current), self.parts, attack)


def chain(*parts: Defence) -> Chain:
    """`chain(clip(1.0), gaussian_noise(1e-2))` clips, then adds noise."""
    return Chain(tuple(parts))


def _harden_again(current: Hardened, part: Defence, seed: int) -> Hardened:
    client = part.harden(current.client, seed=seed)
    # The server's side is hardened by itself where it differs: nothing private may come along.
    server = client if current.client is current.server else part.harden(current.server, seed=seed)
    if current.loss and client.loss:
        raise UsageError(
            f"only one defence of a chain may bring a loss of its own, {part.name!r} brings a second; leave one out"
        )
    return Hardened(client.client, server.server, client.loss or current.loss, current.private | client.private)


def _batch(hooks: Sequence[BatchHook]) -> BatchHook | None:
    def in_turn(batch: Batch, rng: Generator) -> Batch:
        return reduce(lambda current, hook: hook(current, rng), hooks, batch)

    return in_turn if hooks else None


def _gradients(hooks: Sequence[GradientHook]) -> GradientHook | None:
    def in_turn(gradients: dict[str, Tensor], context: StepContext) -> dict[str, Tensor]:
        return reduce(lambda current, hook: hook(current, context), hooks, gradients)

    return in_turn if hooks else None


def _update(hooks: Sequence[UpdateHook]) -> UpdateHook | None:
    def in_turn(update: SharedUpdate, rng: Generator) -> SharedUpdate | SealedUpdate:
        current: SharedUpdate | SealedUpdate = update
        for hook in hooks:
            # Nobody can change a sealed update: what comes after the seal has nothing to act on.
            current = current if isinstance(current, SealedUpdate) else hook(current, rng)
        return current

    return in_turn if hooks else None


def _feedback(each: Sequence[ClientHooks]) -> FeedbackHook:
    """All that is done to a finished update, in turn; every part has a memory of its own."""

    def in_turn(
        update: SharedUpdate, held_back: Tensors, rng: Generator
    ) -> tuple[SharedUpdate | SealedUpdate, dict[str, Tensor]]:
        current: SharedUpdate | SealedUpdate = update
        kept: dict[str, Tensor] = {}
        for place, hooks in enumerate(each):
            if hooks.update and isinstance(current, SharedUpdate):
                current = hooks.update(current, rng)
            if hooks.feedback and isinstance(current, SharedUpdate):
                prefix = f"{place}:"
                own = {name.removeprefix(prefix): value for name, value in held_back.items() if name.startswith(prefix)}
                current, left = hooks.feedback(current, own, rng)
                kept |= {prefix + name: value for name, value in left.items()}
        return current, kept

    return in_turn
