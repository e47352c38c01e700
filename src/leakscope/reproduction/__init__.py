"""Tables and figures of papers, measured again: what a recipe is written with."""

from __future__ import annotations

from leakscope.reproduction.cells import RecipeCell, attack_cell, call_cell, network, training, training_cell
from leakscope.reproduction.judging import (
    above,
    correlates,
    every,
    judge_estimate,
    reaches,
    succeeds,
    untestable,
)
from leakscope.reproduction.recipe import Claim, ClaimVerdict, Paper, PaperNumber, PaperRecipe, RecipeScale
from leakscope.reproduction.results import CallValues, CellResult, Results
from leakscope.reproduction.statistics import Estimate
from leakscope.reproduction.victims import draw_victims

__all__ = [
    "CallValues",
    "CellResult",
    "Claim",
    "ClaimVerdict",
    "Estimate",
    "Paper",
    "PaperNumber",
    "PaperRecipe",
    "RecipeCell",
    "RecipeScale",
    "Results",
    "above",
    "attack_cell",
    "call_cell",
    "correlates",
    "draw_victims",
    "every",
    "judge_estimate",
    "network",
    "reaches",
    "succeeds",
    "training",
    "training_cell",
    "untestable",
]
