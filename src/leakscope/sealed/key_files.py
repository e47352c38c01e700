"""Keys in files: the secret half readable by its owner alone, the public half as text for everyone."""

from __future__ import annotations

import base64
import binascii
import json
import os
import stat
from pathlib import Path
from typing import Any

from leakscope.errors import BadInputError, LeakscopeError
from leakscope.files.atomic import write_atomic
from leakscope.regular_files import read_file, show
from leakscope.sealed.ckks import SCHEME as CKKS
from leakscope.sealed.ckks import CkksKeys, CkksSealingKey
from leakscope.sealed.keys import OpeningKeys, SealingKey, SealingLimits
from leakscope.sealed.opening_count import OpeningCount
from leakscope.sealed.paillier import PaillierKeys, PaillierSealingKey, UnsafePaillierKeys

_MOST_BYTES = 4 * 2**20
_PAILLIER = {kind.scheme: kind for kind in (PaillierKeys, UnsafePaillierKeys)}


def save_keys(path: str | os.PathLike[str], keys: OpeningKeys) -> Path:
    """Write both halves to a file that only its owner can read (0600); `load_keys` reads it."""
    content = {"public": json.loads(keys.public.to_json()), "secret": keys.secret_fields()}
    written = write_atomic(path, json.dumps(content).encode())
    keys.count_at(_count_file(written))
    return written


def load_keys(path: str | os.PathLike[str]) -> OpeningKeys:
    """Read what `save_keys` wrote; a file that others can read is refused."""
    mode = os.stat(path).st_mode if os.path.exists(path) else 0
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadInputError(
            f"{show(str(path))}: a key file must be readable by its owner alone, its mode is {stat.S_IMODE(mode):o}; "
            "make new keys if others may have read it, else chmod 600"
        )
    content = _parse(read_file(path, most=_MOST_BYTES), str(path))
    try:
        public, secret = _public(content["public"]), content["secret"]
        if isinstance(public, CkksSealingKey):
            opened = OpeningCount(_count_file(Path(path)))
            return CkksKeys(base64.b64decode(secret["secret_key"], validate=True), public, opened=opened)
        assert isinstance(public, PaillierSealingKey)
        return _PAILLIER[public.scheme](int(secret["p"], 16), int(secret["q"], 16), public)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        if isinstance(error, LeakscopeError):
            raise
        # Not the error's own words: they may quote the secret.
        raise BadInputError(f"{show(str(path))}: expected keys as save_keys writes them; make new ones") from None


def _count_file(path: Path) -> Path:
    """Beside the keys, so that a restart does not begin to count again."""
    return path.with_name(f"{path.name}.openings")


def load_public(text: str) -> SealingKey:
    """Read what `SealingKey.to_json` wrote."""
    try:
        return _public(_parse(text.encode(), "the public key"))
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        if isinstance(error, LeakscopeError):
            raise
        raise BadInputError("expected a public key as SealingKey.to_json writes it; ask for it again") from error


def _parse(content: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadInputError(f"{show(name)}: expected a key in JSON; is it the right file?")
    return found


def _public(fields: dict[str, Any]) -> SealingKey:
    limits = SealingLimits(**fields["limits"])
    if fields["scheme"] == CKKS:
        return CkksSealingKey(base64.b64decode(fields["public_key"], validate=True), limits, fields["openings"])
    if fields["scheme"] not in _PAILLIER:
        raise BadInputError(f"unknown scheme {show(str(fields['scheme']))} of a key; expected paillier or ckks")
    modulus, base = int(fields["modulus"], 16), int(fields["base"], 16)
    return PaillierSealingKey(modulus, base, limits, fields["fraction_bits"], fields["scheme"])
