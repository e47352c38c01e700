"""Updates that only whoever holds the keys can read, and that a server can still add up."""

from leakscope.sealed.admission import check_update
from leakscope.sealed.api import combine, error_bound, open_sealed, open_update, seal
from leakscope.sealed.authenticate import client_secret
from leakscope.sealed.envelope import from_bytes, to_bytes
from leakscope.sealed.key_files import load_keys, load_public, save_keys
from leakscope.sealed.keys import OpeningKeys, SealingKey
from leakscope.sealed.new_keys import keygen
from leakscope.sealed.shares import Shares, apportion

__all__ = [
    "OpeningKeys",
    "SealingKey",
    "Shares",
    "apportion",
    "check_update",
    "client_secret",
    "combine",
    "error_bound",
    "from_bytes",
    "keygen",
    "load_keys",
    "load_public",
    "open_sealed",
    "open_update",
    "save_keys",
    "seal",
    "to_bytes",
]
