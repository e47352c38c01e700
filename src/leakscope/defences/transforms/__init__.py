"""Automatic transformation search (ATS): pictures are transformed before the client trains on them."""

from __future__ import annotations

from leakscope.defences.transforms.defence import Transforms, transforms
from leakscope.defences.transforms.policy import NUMBER_OF_OPERATIONS, Policy, apply

__all__ = ["NUMBER_OF_OPERATIONS", "Policy", "Transforms", "apply", "transforms"]
