"""Wrong formulas, and the tests that must notice them."""

from __future__ import annotations

from mutants import attacks, clients, compression, matching, measures, utility, verdicts
from mutants.mutant import Mutant as Mutant

ALL: tuple[Mutant, ...] = (
    *attacks.MUTANTS,
    *matching.MUTANTS,
    *clients.MUTANTS,
    *compression.MUTANTS,
    *measures.MUTANTS,
    *utility.MUTANTS,
    *verdicts.MUTANTS,
)
