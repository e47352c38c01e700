"""Run a grid of cells so that nothing finished is lost and nothing finished is run twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leakscope.errors import BadInputError
from leakscope.execution import PROCESSES, RAY, check_execution
from leakscope.runner import journal
from leakscope.runner.cells import Cell, CellOutcome, Execute
from leakscope.runner.dispatch import Dispatch
from leakscope.runner.events import Event, EventKind, Interrupts, OnEvent, ignore
from leakscope.runner.ledger import JOURNAL, Ledger, entries_of, load_cell, open_ledger
from leakscope.runner.limits import Limits
from leakscope.runner.outcomes import Outcomes, SweepResult
from leakscope.runner.process_workers import ProcessPool
from leakscope.runner.ray_cluster import ExistingCluster, LocalCluster
from leakscope.runner.ray_workers import RayPool
from leakscope.runner.workers import WorkerPool
from leakscope.types import Status

# What a second try may change: the rest says something about the cell itself.
_RETRIABLE = (Status.ERROR, Status.TIMEOUT, Status.OOM)


def run(
    cells: Sequence[Cell],
    execute: Execute,
    directory: Path,
    *,
    on: str = PROCESSES,
    workers: int = 1,
    timeout: float | None = None,
    memory_mb: int | None = None,
    seconds: float | None = None,
    retry_failed: bool = False,
    on_event: OnEvent | None = None,
) -> SweepResult:
    """Run every cell that `directory` does not hold yet, in worker processes or on Ray.

    Call it again with the same cells to continue after a crash, a kill, a full disk, SIGTERM or Ctrl-C.
    The files written depend on the cells alone, not on the number of workers, where they run, their order
    or how often the run was resumed.

    Args:
        cells: what to run. Equal cells run once.
        execute: picklable function at the top level of a module, or a `NamedCall` of one with its settings;
            runs in a worker.
        directory: the run directory, created with mode 0700 when absent.
        on: `processes` of this machine; `ray`, a cluster on this machine that ends with the run; or the address
            of one that exists, `ray://host:port`.
        workers: processes, or actors of Ray, each with one torch thread.
        timeout: seconds after which a cell is stopped with status `timeout`.
        memory_mb: what all workers together may use. Each gets an equal share; a cell that needs
            more is tried once more alone with all of it, then has status `oom`.
        seconds: no cell but the first begins after so long; the running ones end, and the next call continues.
        retry_failed: also run cells again that ended in `error`, `timeout` or `oom`.
        on_event: called with each `Event`; see `show_events`.

    Raises:
        UsageError: another process runs this directory, or `execute` cannot be imported by workers.
        MissingExtraError: Ray is not installed.
        BadInputError: the journal was edited or belongs to something else.
        StorageError: the disk is full; what was finished before stays finished.
    """
    limits = Limits(workers, timeout, memory_mb, seconds)
    with (
        open_pool(on, execute, workers=workers) as pool,
        open_ledger(Path(directory)) as ledger,
        Interrupts() as interrupts,
    ):
        return run_in(
            ledger, cells, pool, limits=limits, interrupts=interrupts, retry_failed=retry_failed, on_event=on_event
        )


def open_pool(on: str, execute: Execute, *, workers: int) -> WorkerPool:
    """The pool of what `on` names, which starts nothing before its first worker."""
    check_execution(on)
    if on == PROCESSES:
        return ProcessPool(execute)
    return RayPool(execute, LocalCluster(workers) if on == RAY else ExistingCluster(on, workers=workers))


def run_in(
    ledger: Ledger,
    cells: Sequence[Cell],
    pool: WorkerPool,
    *,
    limits: Limits,
    interrupts: Interrupts,
    retry_failed: bool = False,
    on_event: OnEvent | None = None,
) -> SweepResult:
    """As `run`, in a directory that the caller holds: its lock also covers what the caller writes there."""
    tell = on_event or ignore
    unique = list({cell.key: cell for cell in cells}.values())
    done, todo = _split(unique, ledger, retry_failed=retry_failed, tell=tell)
    dispatch = Dispatch(ledger, pool, limits=limits, on_event=tell)
    dispatch.drive(todo, done=done, interrupts=interrupts)
    outcomes = Outcomes(ledger.directory, [(cell.key, ledger.entries.get(cell.key)) for cell in cells])
    return SweepResult(
        outcomes,
        dispatch.executed,
        len(done),
        interrupts.count > 0,
        dispatch.out_of_time,
        interrupts.signal,
        frozenset(dispatch.unended),
    )


def _split(
    cells: Sequence[Cell], ledger: Ledger, *, retry_failed: bool, tell: OnEvent
) -> tuple[list[Cell], list[Cell]]:
    """Sort cells into finished ones, each checked against its file, and those to run."""
    _report_repairs(ledger, total=len(cells), tell=tell)
    done: list[Cell] = []
    todo: list[Cell] = []
    for cell in cells:
        entry = ledger.entries.get(cell.key)
        why = ""
        if entry is not None and not ledger.intact(cell.key):
            why = "its file is missing or damaged"
        elif entry is not None and retry_failed and entry.status in _RETRIABLE:
            why = f"it ended with status {entry.status}"
        if why:
            del ledger.entries[cell.key]
            tell(Event(EventKind.RERUN, len(done), len(cells), key=cell.key, name=cell.name, detail=why))
        (done if cell.key in ledger.entries else todo).append(cell)
    return done, todo


def _report_repairs(ledger: Ledger, *, total: int, tell: OnEvent) -> None:
    repairs = []
    if ledger.stale_lock:
        repairs.append("took over the lock of a process that has ended")
    if ledger.journal.torn_bytes:
        repairs.append(f"cut {ledger.journal.torn_bytes} bytes of an unfinished record off the journal")
    repairs += [f"journal line {line} is damaged; its cell is run again" for line in ledger.journal.damaged_lines]
    for repair in repairs:
        tell(Event(EventKind.RECOVER, 0, total, detail=repair))


def read_cells(directory: Path) -> list[tuple[Cell, CellOutcome]]:
    """Read all finished cells of a run directory, in the order of their keys, without running any.

    Raises:
        BadInputError: there is no run, or a file does not hold what the journal says.
    """
    path = Path(directory) / JOURNAL
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(f"no run to read in {directory} ({error.strerror}); expected {JOURNAL} there") from error
    entries = entries_of(journal.scan(data, source=str(path)).records)
    return [load_cell(Path(directory), key, entry) for key, entry in sorted(entries.items())]
