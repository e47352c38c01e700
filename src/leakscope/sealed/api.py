"""Seal updates, add them up without opening them, and open the sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import torch
from torch import Tensor

from leakscope.errors import BadInputError
from leakscope.sealed.admission import check_updates, count_values, refuse
from leakscope.sealed.authenticate import sign
from leakscope.sealed.envelope import DTYPES, check_key
from leakscope.sealed.keys import OpeningKeys, PayloadError, SealingKey, Values
from leakscope.sealed.shares import apportion
from leakscope.sealed_update import Kind, SealedTensor, SealedUpdate
from leakscope.types import SharedUpdate, Tensors


def seal(
    update: SharedUpdate | Tensors,
    public: SealingKey,
    *,
    client: str = "",
    round: int = 0,
    secret: bytes | None = None,
) -> SealedUpdate:
    """Encrypt an update, or tensors by name, so that only whoever holds the keys can read it.

    Whole-number buffers, such as counters, are left out. With the client's `secret` the result is signed for `client`
    and `round`.

    Raises:
        BadInputError: a value is not finite, or beyond what the key was made for.
    """
    entries, kind, examples = _entries(update)
    values = np.concatenate([_flatten(one.name, value, public) for one, value in entries])
    if not len(values):
        raise BadInputError("there is nothing to seal: the tensors have no entries")
    sealed = SealedUpdate(
        scheme=public.scheme,
        payload=public.encrypt(values),
        num_examples=examples,
        kind=kind,
        contents=tuple(one for one, _ in entries),
        key=public.fingerprint,
        client=client,
        round=round,
        public=public,
    )
    return sealed if secret is None else sign(sealed, secret)


def combine(
    updates: Sequence[SealedUpdate],
    weights: Sequence[float],
    *,
    secrets: Mapping[str, bytes] | None = None,
    round: int | None = None,
) -> SealedUpdate:
    """Σ wᵢ uᵢ of sealed updates, itself sealed. Needs no key that opens.

    Weights are rounded to whole numbers that keep their sum, see `leakscope.sealed.shares.apportion`; how far the
    result may be off is what `error_bound` says.

    Args:
        updates: One per client, sealed with the same key.
        weights: One finite number ≥ 0 per update.
        secrets: The secret of every client, to check who sent what. Must be given where updates are signed.
        round: The round that all must be of; goes with `secrets`.

    Raises:
        CiphertextError: naming the client whose update is not authentic, of another round, sent twice, truncated,
            malformed, or sealed with another key. Nothing is added up then.
    """
    public = check_updates(updates, weights, secrets=secrets, round=round)
    shares = apportion(weights, public.limits.pieces)
    try:
        payload = public.add([one.payload for one in updates], shares.numbers, count=count_values(updates[0]))
    except PayloadError as error:
        raise refuse(updates[error.place], error) from error
    counts = [one.num_examples for one in updates]
    return replace(
        updates[0],
        payload=payload,
        num_examples=None if None in counts else sum(count for count in counts if count is not None),
        client=", ".join(one.client for one in updates),
        tag=b"",
        pieces=shares.pieces,
        weight=shares.weight,
    )


def open_sealed(total: SealedUpdate, keys: OpeningKeys) -> dict[str, Tensor]:
    """Open a sum, or one client's update: name → tensor, in the dtypes that were sealed, on the processor."""
    found = open_update(total, keys)
    return {**found[0], **found[1]}


def open_update(total: SealedUpdate, keys: OpeningKeys) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """As `open_sealed`, with parameters and buffers apart."""
    check_key(total, keys.public)
    if total.pieces > keys.public.limits.pieces:
        raise refuse(total, PayloadError(0, "malformed", f"it claims {total.pieces} pieces"))
    try:
        means = keys.decrypt(total.payload, count=count_values(total), pieces=max(1, total.pieces))
    except PayloadError as error:
        raise refuse(total, error) from error
    values, place = means * total.weight, 0
    found: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})
    for one in total.contents:
        size = prod(one.shape)
        part = torch.from_numpy(values[place : place + size].copy()).reshape(one.shape)
        found[one.is_buffer][one.name] = part.to(DTYPES[one.dtype])
        place += size
    return found


def error_bound(public: SealingKey, weights: Sequence[float], largest: Sequence[float] | float) -> float:
    """How far an entry of an opened sum may be from Σ wᵢ uᵢ, before it is rounded to its dtype.

    Args:
        public: The key.
        weights: As given to `combine`.
        largest: Largest magnitude in each update, or in all of them.
    """
    shares = apportion(weights, public.limits.pieces)
    sizes = [largest] * len(weights) if isinstance(largest, int | float) else largest
    rounded = sum(off * size for off, size in zip(shares.error(weights), sizes, strict=True))
    # Double precision in between: once for the mean, once for its weight.
    return shares.weight * (public.precision + public.limits.bound * 2.0**-51) + rounded


def _entries(update: SharedUpdate | Tensors) -> tuple[list[tuple[SealedTensor, Tensor]], Kind, int | None]:
    """What is sealed, in order, with the kind and the number of examples."""
    if isinstance(update, SharedUpdate):
        tensors, buffers = update.tensors, {k: v for k, v in update.buffers.items() if v.is_floating_point()}
        kind, examples = update.kind, update.num_examples
    else:
        tensors, buffers, kind, examples = update, {}, "tensors", None
    named = [(name, value, False) for name, value in tensors.items()]
    named += [(name, value, True) for name, value in buffers.items()]
    found = []
    for name, value, is_buffer in named:
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise BadInputError(f"{name!r} is of dtype {dtype}, expected one of {', '.join(DTYPES)}; convert it first")
        found.append((SealedTensor(name, tuple(value.shape), dtype, is_buffer), value))
    if not found:
        raise BadInputError("there is nothing to seal: no tensor was given")
    return found, kind, examples


def _flatten(name: str, value: Tensor, public: SealingKey) -> Values:
    flat = value.detach().cpu().to(torch.float64).reshape(-1)
    if not bool(torch.isfinite(flat).all()):
        raise BadInputError(f"{name!r} holds NaN or Inf, which cannot be sealed; lower the learning rate")
    if flat.numel() and float(flat.abs().max()) > public.limits.bound:
        raise BadInputError(
            f"{name!r} holds a value beyond ±{public.limits.bound:g}, the bound of this key, and would overflow "
            "into its neighbours; clip the update, or make keys with a larger bound"
        )
    return flat.numpy()
