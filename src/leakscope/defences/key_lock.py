"""Key-lock (FedKL): scale and shift behind a normalisation come from a private key, through private layers.

Ren, Deng, Xie, Ma, Ma: Gradient Leakage Defense with Key-Lock Module for Federated Learning, 2023.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from leakscope import rng as random
from leakscope.attack import Attack
from leakscope.defence import Defence, Hardened
from leakscope.defences.locks import (
    Lock,
    LockOfUnknownKey,
    LockTensors,
    Place,
    UnknownLock,
    find_places,
    insert_locks,
)
from leakscope.defences.precode import BehindFirstLinear
from leakscope.errors import UsageError, suggest

PAPER = "Ren, Deng, Xie, Ma, Ma: Gradient Leakage Defense with Key-Lock Module for Federated Learning, arXiv:2305.04095"

Activation = Literal["none", "relu", "sigmoid"]
Shared = Literal["none", "key", "lock", "both"]
Scaling = Literal["locked", "affine", "none"]

# The lock comes behind the first layer: a fully connected one gives its input away as before. A search for scale,
# shift and picture together ends in many places: one of several starts comes much further than the usual one.
_STRONG_ATTACKS = ("fc-inversion", "inverting-gradients:restarts=4")


@dataclass(frozen=True)
class KeyLock(Defence):
    """Normalisation without a scale of its own, then a lock; or, for comparison, the same without the lock.

    Attributes:
        activation: what is applied to γ and β.
        blocks: the first convolution alone, or all of them, each lock with the γ and β of the one before as its key.
        shared: what the server knows besides the network: the key, the lock's layers with their gradients, both, none.
        lock_known: whether the server knows the lock's layers all the same, though not their gradients.
        scaling: "locked"; "affine" and "none" are normalisation with a trained scale and shift, and without any.
        key_length: numbers of the key.
    """

    activation: Activation = "none"
    blocks: Literal["first", "all"] = "first"
    shared: Shared = "none"
    lock_known: bool = False
    scaling: Scaling = "locked"
    key_length: int = 1024
    name: str = "key-lock"
    paper: str = PAPER
    changes_network = True
    strong_attacks: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        choices = {
            "activation": (self.activation, get_args(Activation)),
            "blocks": (self.blocks, ("first", "all")),
            "shared": (self.shared, get_args(Shared)),
            "scaling": (self.scaling, get_args(Scaling)),
        }
        for option, (value, known) in choices.items():
            if value not in known:
                raise UsageError(f"key-lock has no {option}={value!r}.{suggest(str(value), known)}")
        if not isinstance(self.key_length, int) or self.key_length < 1:
            raise UsageError(f"key-lock needs a whole number key_length ≥ 1, got {self.key_length!r}")
        # The baselines hide nothing, so there is nothing to search for.
        object.__setattr__(self, "strong_attacks", _STRONG_ATTACKS if self.scaling == "locked" else ())

    def harden(self, model: nn.Module, *, seed: int = 0) -> Hardened:
        """The network with locks, and what the server knows of it; key and layers follow from `seed`."""
        places = find_places(model)[: 1 if self.blocks == "first" else None]
        like = next(model.parameters())
        key = random.uniform((self.key_length,), random.generator(seed, "key"), like=like.detach())
        locks = self._locks(places, key, kind=Lock, seed=seed)
        client = insert_locks(model, places, locks, affine=self.scaling == "affine")
        if self.scaling != "locked":
            return Hardened(client, client)
        server = insert_locks(model, places, self._guesses(places, key, seed), affine=False)
        return Hardened(client, server, private=self._private(client))

    def adapt(self, attack: Attack) -> Attack:
        """The attacker searches for γ and β, or for the key where the lock is known, beside the pictures.

        Free scales and shifts explain the long gradients of the last layers with any picture, and a cosine of all
        tensors then ends at zero on a wrong one: what lies behind the first fully connected layer is left out. A
        lock's shared gradient tells the key in closed form, and then nothing of the picture that the other tensors do
        not tell; it is so long that a match of all tensors would be a match of little else.
        """
        if self.scaling != "locked":
            return attack
        needless = (BehindFirstLinear(), *((LockTensors(),) if self.shared in ("lock", "both") else ()))
        return attack.revised(lambda recipe: replace(recipe, unknowns=True, leave_out=(*recipe.leave_out, *needless)))

    def _locks(self, places: list[Place], key: Tensor, *, kind: type[Lock], seed: int) -> dict[str, nn.Module]:
        if self.scaling != "locked":
            return {}
        found: dict[str, Lock] = {}
        before: Lock | None = None
        for number, place in enumerate(places):
            rng = random.generator(seed, "lock", number)
            before = kind(place.channels, key, activation=self.activation, rng=rng, before=before)
            found[place.layer] = before
        return dict(found)

    def _guesses(self, places: list[Place], key: Tensor, seed: int) -> dict[str, nn.Module]:
        """The locks as the server has them."""
        sends_lock = self.shared in ("lock", "both")
        if not (sends_lock or self.lock_known):
            return {place.layer: UnknownLock(place.channels, key) for place in places}
        if self.shared in ("key", "both"):
            locks = self._locks(places, key, kind=Lock, seed=seed)
        else:
            locks = self._locks(places, torch.full_like(key, 0.5), kind=LockOfUnknownKey, seed=seed)
        for lock in locks.values():
            lock.requires_grad_(sends_lock)
        return locks

    def _private(self, client: nn.Module) -> frozenset[str]:
        """Names of what stays: the key, and the lock's layers, unless they are shared."""
        found: set[str] = set()
        for name, module in client.named_modules():
            if isinstance(module, Lock):
                own = {f"{name}.{one}" for one, _ in module.named_parameters()}
                found |= own if self.shared in ("none", "key") else set()
                found |= {f"{name}.key"} if not module.before and self.shared in ("none", "lock") else set()
        return frozenset(found)


def key_lock(
    activation: Activation = "none",
    *,
    blocks: Literal["first", "all"] = "first",
    shared: Shared = "none",
    lock_known: bool = False,
    scaling: Scaling = "locked",
    key_length: int = 1024,
) -> KeyLock:
    """Take scale and shift behind the first convolution from a private key, through private layers.

    `activation` on both is "none" (the thesis), "relu" or "sigmoid" (the released code). `shared` says what the server
    knows, `lock_known` that it knows the lock's layers all the same, as the released attackers do. `scaling` "affine"
    and "none" are the baselines: the same normalisation with a trained scale and shift, and without any.
    """
    names = {"locked": "key-lock", "affine": "batch-norm-affine", "none": "batch-norm-plain"}
    return KeyLock(activation, blocks, shared, lock_known, scaling, key_length, names.get(scaling, "key-lock"))
