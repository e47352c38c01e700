"""Wrong formulas, and the tests that must notice them."""

from __future__ import annotations

from mutants import (
    attacks,
    clients,
    compression,
    fast_route,
    federated,
    flower,
    hardening,
    inspection,
    malicious,
    matching,
    measures,
    privacy,
    ray,
    sealing,
    text,
    transforms,
    utility,
    verdicts,
)
from mutants.mutant import Mutant as Mutant

_PARTS = (
    attacks,
    matching,
    fast_route,
    clients,
    transforms,
    compression,
    privacy,
    hardening,
    measures,
    utility,
    federated,
    flower,
    verdicts,
    sealing,
    text,
    ray,
    malicious,
    inspection,
)

ALL: tuple[Mutant, ...] = tuple(one for part in _PARTS for one in part.MUTANTS)
