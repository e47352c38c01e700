"""Who sent a sealed update, and in which round: HMAC-SHA256 with a secret of each client's own.

Checked before anything of the update is parsed. The client and the server share the secret; whoever opens does not
need it. Nothing beyond Python is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import replace

from leakscope.errors import CiphertextError, UsageError
from leakscope.sealed_update import SealedUpdate

SECRET_BYTES = 32
TAG_BYTES = 32
_PURPOSE = b"leakscope sealed update 1"


def client_secret() -> bytes:
    """A new secret for one client, to be shared with the server and nobody else."""
    return secrets.token_bytes(SECRET_BYTES)


def header_of(update: SealedUpdate) -> bytes:
    """All of an update but its ciphertexts, its sender and its tag; the same for equal updates."""
    contents = [[one.name, list(one.shape), one.dtype, one.is_buffer] for one in update.contents]
    fields = {
        "scheme": update.scheme,
        "num_examples": update.num_examples,
        "kind": update.kind,
        "contents": contents,
        "key": update.key,
        "round": update.round,
        "pieces": update.pieces,
        "weight": update.weight,
    }
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def compute_tag(secret: bytes, client: bytes, header: bytes, payload: bytes) -> bytes:
    """HMAC over sender, header and ciphertexts, each behind its length, so that no two messages read the same."""
    if not isinstance(secret, bytes) or len(secret) < SECRET_BYTES:
        raise UsageError(f"a client's secret needs at least {SECRET_BYTES} bytes; take one from client_secret()")
    found = hmac.new(secret, _PURPOSE, hashlib.sha256)
    for part in (client, header, payload):
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.digest()


def sign(update: SealedUpdate, secret: bytes) -> SealedUpdate:
    """The update with its tag."""
    return replace(update, tag=compute_tag(secret, update.client.encode(), header_of(update), update.payload))


def check_tag(known: Mapping[str, bytes], client: str, *, tag: bytes, header: bytes, payload: bytes) -> None:
    """Insist that `client` is known and made this tag."""
    if client not in known:
        raise CiphertextError(
            f"{name_client(client)} is not one of the {len(known)} clients of this federation; its update was left out",
            client=client,
            reason="not authentic",
        )
    if not tag or not hmac.compare_digest(tag, compute_tag(known[client], client.encode(), header, payload)):
        raise CiphertextError(
            f"the update of {name_client(client)} is not authentic: it was changed on its way, or somebody else "
            "made it; ask the client for it again",
            client=client,
            reason="not authentic",
        )


def check_round(update: SealedUpdate, round: int) -> None:
    """Insist on an update of this very round: a recorded one may be sent again."""
    if update.round != round:
        raise CiphertextError(
            f"the update of {name_client(update.client)} is of round {update.round}, expected one of round {round}; "
            "it was sent before, or comes too late",
            client=update.client,
            reason="wrong round",
        )


def name_client(client: str) -> str:
    """A client in a message, its name quoted and bounded."""
    return f"client {client[:80]!r}" if client else "an unnamed client"
