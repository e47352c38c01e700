"""A crash-proof runner for grids of cells. It knows nothing of attacks: cells in, files out."""

from leakscope.sweep.cells import JSON, Cell, CellOutcome, Execute
from leakscope.sweep.events import Event, Kind
from leakscope.sweep.run import SweepResult, finished, run

__all__ = ["JSON", "Cell", "CellOutcome", "Event", "Execute", "Kind", "SweepResult", "finished", "run"]
