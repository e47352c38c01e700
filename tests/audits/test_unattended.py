"""Runs that nobody watches: limits without being asked, signals that leave a summary, one lock over all files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from frozen_worker import FROZEN, execute_and_freeze

from leakscope.audits import parse_config, run_campaign
from leakscope.audits import run as run_module
from leakscope.audits.limits import choose_limits, default_memory_mb
from leakscope.cli import main
from leakscope.errors import UsageError
from leakscope.files import atomic, private_folder
from leakscope.runner import Event, EventKind
from leakscope.runner.ledger import open_ledger
from leakscope.runner.limits import available_mb

SMALL: dict[str, Any] = {
    "model_options": {"mlp": {"hidden": [4]}},
    "attacks": ["fc-inversion"],
    "victims": 1,
    "workers": 1,
    "utility": None,
    "seeds": [0, 1, 2],
}


def _limits(**values: Any) -> Any:
    return choose_limits(parse_config({**SMALL, **values}), workers=2, seconds=None)


def test_every_cell_has_a_limit_unless_it_is_switched_off() -> None:
    usual = _limits()
    free = available_mb()
    assert usual.timeout == 12 * 3600
    assert free is not None
    assert usual.memory_mb == pytest.approx(max(0.9 * free, 4096), rel=0.3)
    assert (_limits(budget="1h").timeout, _limits(budget="2m").timeout) == (3 * 3600, 600)
    for off in (0, "0", "none", "None"):
        assert (_limits(timeout=off).timeout, _limits(memory_mb=off).memory_mb) == (None, None)
    assert _limits(timeout="2h", memory_mb="3000").timeout == 7200
    assert _limits(timeout=1.5, memory_mb="3000").memory_mb == 3000


def test_a_small_machine_still_starts_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leakscope.audits.limits.available_mb", lambda: 900.0)
    assert default_memory_mb(4) == 8192
    monkeypatch.setattr("leakscope.audits.limits.available_mb", lambda: None)
    assert default_memory_mb(4) == 0


@pytest.mark.parametrize(
    "change", [{"timeout": -1}, {"timeout": "soon"}, {"timeout": float("inf")}, {"memory_mb": -5}, {"memory_mb": "big"}]
)
def test_limits_that_are_none_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(change))):
        parse_config({**SMALL, **change})


def _listen(monkeypatch: pytest.MonkeyPatch, listener: Callable[[Event], None]) -> None:
    @contextlib.contextmanager
    def show(**_: object) -> Iterator[Callable[[Event], None]]:
        yield listener

    monkeypatch.setattr(run_module, "show_events", show)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_signal_leaves_summary_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]

    def send(event: Event) -> None:
        if event.kind is EventKind.START and event.done == 1:
            signal.raise_signal(number)

    _listen(monkeypatch, send)
    found = run_campaign(parse_config(SMALL), tmp_path / "run", quiet=True)
    assert found.exit_code == code
    # The second cell is short, and may end before it is stopped.
    executed = found.sweep.executed
    assert executed in ((1, 2) if number is signal.SIGTERM else (2,))
    assert found.missing == 3 - executed
    stored = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert sum(cell["n"] > 0 for cell in stored["cells"]) == executed
    assert (tmp_path / "run" / "report.html").exists()
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == handlers
    monkeypatch.undo()
    assert run_campaign(parse_config(SMALL), tmp_path / "run", quiet=True).exit_code != code


def test_a_cell_without_result_says_whether_it_had_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_at_once(event: Event) -> None:
        if event.kind is EventKind.START and event.done == 1:
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)

    _listen(monkeypatch, stop_at_once)
    config = parse_config({**SMALL, "attacks": ["fc-inversion", "inverting-gradients:steps=100000"], "seeds": [0]})
    found = run_campaign(config, tmp_path / "run", quiet=True)
    assert found.exit_code == 130
    stored = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [(cell["status"], cell["error"]) for cell in stored["cells"]] == [
        ("ok", None),
        ("not-run", "interrupted before it ended"),
    ]


def test_cells_that_never_began_are_called_so_by_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop_after_this(event: Event) -> None:
        if event.kind is EventKind.START and event.done == 0:
            signal.raise_signal(signal.SIGINT)

    _listen(monkeypatch, stop_after_this)
    (tmp_path / "c.yaml").write_text(json.dumps(SMALL))
    junit = tmp_path / "junit.xml"
    words = ["audit", "--config", tmp_path / "c.yaml", "--out", tmp_path / "run", "--junit", junit, "--quiet"]
    monkeypatch.setattr("sys.argv", ["leakscope", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    cells = json.loads((tmp_path / "run" / "summary.json").read_text())["cells"]
    assert [cell["status"] for cell in cells] == ["ok", "not-run", "not-run"]
    assert {cell["error"] for cell in cells[1:]} == {"interrupted before it ran"}
    assert junit.read_text().count("not-run: interrupted before it ran") == 2
    told = capsys.readouterr()
    assert "1 of 3 cells ok, 2 not run" in told.out
    assert "the same command continues: leakscope audit" in told.err
    assert "not-run" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(("presses", "status"), [pytest.param(1, "timeout", marks=pytest.mark.slow), (2, "not-run")])
def test_ctrl_c_ends_a_run_whose_worker_is_frozen_in_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, presses: int, status: str
) -> None:
    note = tmp_path / "frozen"
    monkeypatch.setenv(FROZEN, str(note))
    monkeypatch.setattr(run_module, "execute_planned", execute_and_freeze)
    # Pressed once, the answer is given so long to go on; pressed twice, nothing is waited for.
    monkeypatch.setattr("leakscope.runner.dispatch._STALLED_SECONDS", 2.0 if presses == 1 else 600.0)
    pressed: list[float] = []

    def press() -> None:
        while not note.exists() or not note.read_text() or _state(int(note.read_text())) != "T":
            time.sleep(0.05)
        pressed.append(time.monotonic())
        for _ in range(presses):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)

    words = ["audit", "--attack", "fc-inversion", "--victims", "1", "--workers", "1", "--out", str(tmp_path / "run")]
    (tmp_path / "c.yaml").write_text(json.dumps({**SMALL, "seeds": [0]}))
    monkeypatch.setattr("sys.argv", ["leakscope", *words, "--config", str(tmp_path / "c.yaml"), "--quiet"])
    finger = threading.Thread(target=press, daemon=True)
    finger.start()
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert time.monotonic() - pressed[0] < 30
    (cell,) = json.loads((tmp_path / "run" / "summary.json").read_text())["cells"]
    assert cell["status"] == status
    assert _state(int(note.read_text())) is None, "the frozen worker is still there"


def _state(process: int) -> str | None:
    """The letter of a process in /proc; None where it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def test_the_time_of_a_defence_is_a_median_of_repeats_and_stands_among_the_timings(tmp_path: Path) -> None:
    training = {"rounds": 12, "clients": 2, "batch_size": 4, "examples": 40}
    config = parse_config({**SMALL, "seeds": [0], "utility": training, "defences": ["none", "prune:fraction=0.5"]})
    run_campaign(config, tmp_path / "run", quiet=True)
    stored = json.loads((tmp_path / "run" / "summary.json").read_text())
    (key,) = (cost["key"] for cost in stored["defences"] if cost["name"] == "prune:fraction=0.5")
    found = [stored["timings"][f"{key} {name}"] for name in ("step ratio low", "step ratio", "step ratio high")]
    low, ratio, high = found
    assert 0 < low < ratio < high, "one measurement would have no spread"
    # Measured times differ from run to run, and everything else in the file does not.
    assert not any("ratio" in name and "step" in name for cost in stored["defences"] for name in cost)


def test_a_signal_while_the_report_is_written_is_told_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = run_module.write_report

    def interrupted(*args: Any, **options: Any) -> Path:
        signal.raise_signal(signal.SIGTERM)
        return write(*args, **options)

    monkeypatch.setattr(run_module, "write_report", interrupted)
    found = run_campaign(parse_config({**SMALL, "seeds": [0]}), tmp_path / "run", quiet=True)
    assert (found.exit_code, found.missing) == (143, 0)
    assert found.report.exists()


def test_the_lock_covers_configuration_summary_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, config = tmp_path / "run", parse_config({**SMALL, "seeds": [0]})
    with open_ledger(folder), pytest.raises(UsageError, match="is being run by"):
        run_campaign(config, folder, quiet=True)
    assert not (folder / "config.yaml").exists()
    held = []
    for name in ("_keep_config", "summarise_audit", "write_report"):
        real = getattr(run_module, name)

        def watched(*args: Any, real: Any = real, name: str = name, **options: Any) -> Any:
            with pytest.raises(UsageError, match="is being run by"), open_ledger(folder):
                pass
            held.append(name)
            return real(*args, **options)

        monkeypatch.setattr(run_module, name, watched)
    run_campaign(config, folder, quiet=True)
    assert held == ["_keep_config", "summarise_audit", "write_report"]


def test_other_limits_and_workers_continue_the_same_run(tmp_path: Path) -> None:
    run_campaign(parse_config({**SMALL, "seeds": [0]}), tmp_path / "run", quiet=True)
    other = parse_config({**SMALL, "seeds": [0], "workers": 2, "timeout": "1h", "memory_mb": 0})
    assert run_campaign(other, tmp_path / "run", quiet=True).sweep.executed == 0


def test_new_folders_are_on_the_disk_before_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(atomic, "sync_folder", synced.append)
    private_folder(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    synced.clear()
    private_folder(tmp_path / "a" / "b" / "c")
    assert synced == []


def test_a_new_journal_is_on_the_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("leakscope.runner.journal.sync_folder", synced.append)
    with open_ledger(tmp_path / "run"):
        assert synced == [tmp_path / "run"]
