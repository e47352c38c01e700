"""The one refusal of this folder."""

from __future__ import annotations


class Unsupported(Exception):
    """This network has no structured path; the message says which part of it and why.

    Not an error of the caller: the general path (double backward) computes the same gradient.
    """
