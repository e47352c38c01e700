"""The fast matching gradient: hand-derived layer rules instead of a second-order graph."""

from __future__ import annotations

from leakscope.fastgrad.program import Network, Pass, compile_network
from leakscope.fastgrad.unsupported import Unsupported

__all__ = ["Network", "Pass", "Unsupported", "compile_network"]
