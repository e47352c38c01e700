"""Wrong formulas, and the tests that must notice them."""

from __future__ import annotations

from mutants import attacks, clients, compression, matching, measures, transforms, verdicts
from mutants.mutant import Mutant as Mutant

ALL: tuple[Mutant, ...] = (
    *attacks.MUTANTS,
    *matching.MUTANTS,
    *clients.MUTANTS,
    *transforms.MUTANTS,
    *compression.MUTANTS,
    *measures.MUTANTS,
    *verdicts.MUTANTS,
)
