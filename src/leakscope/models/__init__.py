"""Reference networks of the attack and defence papers; normalisation is their first layer."""

from leakscope.models.build import build, names
from leakscope.models.network import load_network
from leakscope.models.normalise import Normalise
from leakscope.models.weights import load_weights

__all__ = ["Normalise", "build", "load_network", "load_weights", "names"]
