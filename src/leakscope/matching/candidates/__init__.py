"""Axis 2: what is optimised, where it starts, and where it must stay."""

from __future__ import annotations

from leakscope.matching.candidates.alternatives import Alternatives, known_chains
from leakscope.matching.candidates.generators import TwoBranchGenerator
from leakscope.matching.candidates.latent import LATENT, Latent, TunedWeights, as_prior, load_prior, save_prior
from leakscope.matching.candidates.patterned import Pattern, Patterned
from leakscope.matching.candidates.pixels import Candidate, Pixels, Variables
from leakscope.matching.candidates.transformed import Transformed
from leakscope.matching.candidates.transforms import TRANSFORMS, Transform

__all__ = [
    "LATENT",
    "TRANSFORMS",
    "Alternatives",
    "Candidate",
    "Latent",
    "Pattern",
    "Patterned",
    "Pixels",
    "Transform",
    "Transformed",
    "TunedWeights",
    "TwoBranchGenerator",
    "Variables",
    "as_prior",
    "known_chains",
    "load_prior",
    "save_prior",
]
