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
    local_steps,
    malicious,
    matching,
    measures,
    privacy,
    ray,
    reproduction,
    sealing,
    steady_layers,
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
    local_steps,
    steady_layers,
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
    reproduction,
)

ALL: tuple[Mutant, ...] = tuple(one for part in _PARTS for one in part.MUTANTS)
