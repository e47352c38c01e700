"""Wrong formulas, and the tests that must notice them."""

from __future__ import annotations

from mutants import attacks, clients, hardening, matching, measures, verdicts
from mutants.mutant import Mutant as Mutant

ALL: tuple[Mutant, ...] = (
    *attacks.MUTANTS,
    *matching.MUTANTS,
    *clients.MUTANTS,
    *hardening.MUTANTS,
    *measures.MUTANTS,
    *verdicts.MUTANTS,
)
