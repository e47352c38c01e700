"""A crash-proof runner for grids of cells. It knows nothing of attacks: cells in, files out."""

from leakscope.runner.cells import JSON, Cell, CellOutcome, Execute
from leakscope.runner.events import Event, Kind
from leakscope.runner.run import SweepResult, finished, run

__all__ = ["JSON", "Cell", "CellOutcome", "Event", "Execute", "Kind", "SweepResult", "finished", "run"]
