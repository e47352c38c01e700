"""A sealed update as bytes, and back: authenticated before it is parsed, and parsed strictly.

message = "LSSU1", sender, tag, header (JSON), ciphertexts;  each but the last behind its length
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import isfinite, prod
from typing import Any

import torch

from leakscope.errors import CiphertextError
from leakscope.sealed.authenticate import TAG_BYTES, check_round, check_tag, header_of, name_client
from leakscope.sealed.keys import SealingKey
from leakscope.sealed_update import SealedTensor, SealedUpdate

MAGIC = b"LSSU1"
DTYPES = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
}
_MOST_NAME, _MOST_HEADER, _MOST_VALUES = 1024, 64 * 2**20, 2**36


def to_bytes(update: SealedUpdate) -> bytes:
    """What is sent of a sealed update; the public key is not."""
    parts = [update.client.encode(), update.tag, header_of(update)]
    return MAGIC + b"".join(struct.pack("<I", len(part)) + part for part in parts) + update.payload


def from_bytes(
    message: bytes,
    public: SealingKey,
    *,
    secrets: Mapping[str, bytes] | None = None,
    round: int | None = None,
) -> SealedUpdate:
    """Read what `to_bytes` wrote, for the key that everybody was given.

    Args:
        message: The bytes.
        public: The key that the update must be sealed with.
        secrets: The secret of every client; without them nothing is authenticated.
        round: The round that it must be of.

    Raises:
        CiphertextError: naming the client and the reason.
    """
    client, tag, header, payload = _take_apart(message)
    if secrets is not None:
        check_tag(secrets, client, tag=tag, header=header, payload=payload)
    try:
        update = _parse(json.loads(header), client=client, tag=tag, payload=payload, public=public)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, CiphertextError):
            raise
        raise _malformed(client, "its header is not one of ours") from None
    check_key(update, public)
    if round is not None:
        check_round(update, round)
    return update


def check_key(update: SealedUpdate, public: SealingKey) -> None:
    """Insist that an update was sealed with this key."""
    if (update.scheme, update.key) != (public.scheme, public.fingerprint):
        raise CiphertextError(
            f"the update of {name_client(update.client)} was sealed with key {update.scheme} {update.key[:8]!r}, "
            f"expected {public.scheme} {public.fingerprint[:8]!r}; give it the public key of this run",
            client=update.client,
            reason="foreign key",
        )


def _take_apart(message: bytes) -> tuple[str, bytes, bytes, bytes]:
    if not message.startswith(MAGIC):
        raise _malformed("", f"it does not begin with {MAGIC.decode()}")
    place, parts, name = len(MAGIC), list[bytes](), ""
    for most in (_MOST_NAME, TAG_BYTES, _MOST_HEADER):
        length = int.from_bytes(message[place : place + 4], "little")
        if length > most or place + 4 + length > len(message):
            raise CiphertextError(
                f"the update of {name_client(name)} ends too early; send the bytes as to_bytes returned them",
                client=name,
                reason="truncated",
            )
        parts.append(message[place + 4 : place + 4 + length])
        place += 4 + length
        if len(parts) == 1:
            name = parts[0].decode("utf-8", "replace")
    return name, parts[1], parts[2], message[place:]


def _parse(fields: dict[str, Any], *, client: str, tag: bytes, payload: bytes, public: SealingKey) -> SealedUpdate:
    tensors = tuple(
        SealedTensor(str(n), tuple(_count(s) for s in shape), str(d), bool(b)) for n, shape, d, b in fields["contents"]
    )
    examples = fields["num_examples"]
    weight = float(fields["weight"])
    fits = all(one.dtype in DTYPES for one in tensors) and len({(one.name, one.is_buffer) for one in tensors}) == len(
        tensors
    )
    if (
        not fits
        or not 0 < sum(prod(one.shape) for one in tensors) <= _MOST_VALUES
        or not isfinite(weight)
        or weight < 0
    ):
        raise _malformed(client, "its tensors are none that can be sealed")
    if fields["kind"] not in ("gradient", "delta", "tensors"):
        raise _malformed(client, "its kind is unknown")
    return SealedUpdate(
        scheme=str(fields["scheme"]),
        payload=payload,
        num_examples=None if examples is None else _count(examples),
        kind=fields["kind"],
        contents=tensors,
        key=str(fields["key"]),
        client=client,
        round=_count(fields["round"]),
        tag=tag,
        pieces=_count(fields["pieces"]),
        weight=weight,
        public=public,
    )


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_VALUES:
        raise ValueError("not a count")
    return value


def _malformed(client: str, why: str) -> CiphertextError:
    return CiphertextError(
        f"the update of {name_client(client)} is malformed: {why}; send the bytes as to_bytes returned them",
        client=client,
        reason="malformed",
    )
