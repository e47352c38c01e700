"""A crash-proof runner for grids of cells. It knows nothing of attacks: cells in, files out."""

from leakscope.runner.calls import NamedCall
from leakscope.runner.cells import JSON, Cell, CellOutcome, Execute
from leakscope.runner.events import Event, EventKind
from leakscope.runner.outcomes import SweepResult
from leakscope.runner.run import read_cells, run

__all__ = [
    "JSON",
    "Cell",
    "CellOutcome",
    "Event",
    "EventKind",
    "Execute",
    "NamedCall",
    "SweepResult",
    "read_cells",
    "run",
]
