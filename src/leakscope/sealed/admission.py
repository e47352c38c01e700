"""Which updates may be added up: authentic, of this round, one a client, sealed with one key, of one network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from leakscope.errors import CiphertextError, UsageError
from leakscope.sealed.authenticate import check_round, check_tag, header_of, name_client
from leakscope.sealed.envelope import check_key
from leakscope.sealed.keys import PayloadError, SealingKey
from leakscope.sealed_update import SealedUpdate


def check_update(update: SealedUpdate, public: SealingKey, *, secrets: Mapping[str, bytes], round: int) -> None:
    """Insist on one client's update that is authentic, of this round, of this key, and can be added up.

    Raises:
        CiphertextError: naming the client and the reason.
    """
    _check_one(update, update, public, secrets=secrets, round=round)
    try:
        public.check(update.payload, count=count_values(update))
    except PayloadError as error:
        raise refuse(update, error) from error


def check_updates(
    updates: Sequence[SealedUpdate],
    weights: Sequence[float],
    *,
    secrets: Mapping[str, bytes] | None,
    round: int | None,
) -> SealingKey:
    """All that can be told without looking at ciphertexts; returns the key that all were sealed with."""
    if not updates or len(weights) != len(updates):
        raise UsageError(f"combine needs one weight per update and at least one, got {len(updates)} and {len(weights)}")
    if secrets is not None and round is None:
        raise UsageError("combine needs the round that is being added up, to refuse updates of another; give round=")
    public = updates[0].public
    if not isinstance(public, SealingKey):
        raise UsageError("the update does not know its public key; read it with from_bytes(message, public)")
    if len(updates) > public.limits.clients:
        raise UsageError(
            f"this key adds up at most {public.limits.clients} updates, got {len(updates)}; see keygen(clients=)"
        )
    seen = set[str]()
    for update in updates:
        _check_one(update, updates[0], public, secrets=secrets, round=round)
        if update.client and update.client in seen:
            raise CiphertextError(
                f"{name_client(update.client)} sent two updates in one round; the second was sent again, or is forged",
                client=update.client,
                reason="replayed",
            )
        seen.add(update.client)
    return public


def _check_one(
    update: SealedUpdate,
    first: SealedUpdate,
    public: SealingKey,
    *,
    secrets: Mapping[str, bytes] | None,
    round: int | None,
) -> None:
    if secrets is not None:
        check_tag(secrets, update.client, tag=update.tag, header=header_of(update), payload=update.payload)
    elif update.tag:
        raise UsageError(
            f"the update of {name_client(update.client)} is signed; give combine the clients' secrets to check it"
        )
    if round is not None:
        check_round(update, round)
    check_key(update, public)
    if update.is_total:
        raise refuse(update, PayloadError(0, "malformed", "it is a sum already, and sums cannot be weighed again"))
    if (update.kind, update.contents) != (first.kind, first.contents):
        raise refuse(update, PayloadError(0, "malformed", "it holds other tensors than the first one"))


def count_values(update: SealedUpdate) -> int:
    """How many values are inside."""
    return sum(prod(one.shape) for one in update.contents)


def refuse(update: SealedUpdate, error: PayloadError) -> CiphertextError:
    """The refusal of an update, with its client."""
    return CiphertextError(
        f"the sealed update of {name_client(update.client)} cannot be used: {error.why}; nothing was added up",
        client=update.client,
        reason=error.reason,
    )
