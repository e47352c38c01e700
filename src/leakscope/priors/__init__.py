"""What an attacker may know of images beforehand: decoders from latents to images."""

from leakscope.priors.manifest import describe, recognise
from leakscope.priors.prior import Architecture, Prior
from leakscope.priors.smooth import smooth_prior
from leakscope.priors.training import Trainer, TrainingProgress, TrainingSettings

__all__ = [
    "Architecture",
    "Prior",
    "Trainer",
    "TrainingProgress",
    "TrainingSettings",
    "describe",
    "recognise",
    "smooth_prior",
]
