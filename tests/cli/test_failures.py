"""Exit code 1 means a leak above the gate: no error, closed pipe, full disk or encoding may end in it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leakscope.audits import run as campaign
from leakscope.cli import audit as audit_command
from leakscope.report import SelfCheck

pytestmark = pytest.mark.usefixtures("inline_workers")

Command = Callable[..., tuple[int, str, str]]
_CONFIG = "{utility: null, workers: 1, victims: 1, attacks: [fc-inversion], fail_above: 10}"
_SECRET = "patient-4711"


@pytest.fixture
def audit(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """A small audit of a leaking network, whose own code would be 1."""
    monkeypatch.setattr(campaign, "require_self_check", lambda: SelfCheck(name="planted", psnr=60.0, passed=True))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("LEAKSCOPE_DEBUG", raising=False)
    config = tmp_path / "c.yaml"
    config.write_text(_CONFIG)
    return lambda *words: command("audit", "--config", str(config), "--quiet", "--out", str(tmp_path / "run"), *words)


def test_the_small_audit_exits_1(audit: Command) -> None:
    assert audit()[0] == 1, "otherwise the tests below show nothing"


@pytest.mark.parametrize(
    ("module", "name", "folder", "error"),
    [
        (campaign, "make_plan", "state/leakscope", SystemExit(1)),
        (campaign, "require_self_check", "state/leakscope", KeyError(_SECRET)),
        (campaign, "run_in", "run", MemoryError(_SECRET)),
        (campaign, "summarise_audit", "run", RuntimeError(_SECRET)),
        (campaign, "write_report", "run", OSError(_SECRET)),
        (audit_command, "_print_table", "run", RecursionError(_SECRET)),
    ],
)
def test_an_error_at_any_layer_is_70_with_one_line_and_a_log(
    audit: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    name: str,
    folder: str,
    error: BaseException,
) -> None:
    def fail(*_: object, **__: object) -> None:
        private = _SECRET  # a local variable: no log may show it
        raise error from ValueError(private)

    monkeypatch.setattr(module, name, fail)
    code, _, err = audit()
    assert code == 70
    assert err.count("\n") == 1
    (log,) = (tmp_path / folder).glob("leakscope-error-*.log")
    assert str(log) in err
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    text = log.read_text()
    assert _SECRET not in text
    assert str(tmp_path) not in text
    assert str(Path.home()) not in text
    assert "in fail" in text, "it says where"
    assert f"builtins.{type(error).__name__}" in text
    assert "builtins.ValueError" in text, "it says what was behind it"


def test_an_error_in_a_worker_fails_its_cell_and_permits_nothing(
    audit: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising_attack.py").write_text(
        "from leakscope import get_attack\nfrom leakscope.attack import Attack\n\n"
        "class Raising(Attack):\n    name, paper = 'raising', ''\n\n"
        "    def evaluate(self, seen, reconstruction):\n        return 0.0\n\n"
        "    def _reconstruct(self, seen, seed, watch):\n        raise RuntimeError('boom')\n\n"
        "def build():\n    return Raising()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code, out, _ = audit("--attack", "raising_attack:build")
    assert code == 3
    assert "RuntimeError" in out


def test_a_log_that_cannot_be_written_is_said(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("leakscope.cli.listing._tables", fail)
    monkeypatch.setattr("leakscope.cli.failures._folders", lambda: [tmp_path / "not-here"])
    code, _, err = command("list")
    assert code == 70
    assert "no log could be written" in err


def test_an_error_while_dealing_with_an_error_is_70(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("leakscope.cli.listing._tables", fail)
    monkeypatch.setattr("leakscope.cli.failures._facts", fail)
    assert command("list")[0] == 70


def test_no_command_is_help_and_2(command: Command) -> None:
    code, out, err = command()
    assert code == 2
    assert "audit" in out
    assert err == ""


def test_a_log_follows_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from leakscope.cli import failures

    monkeypatch.setattr(failures.time, "strftime", lambda _: "now")
    monkeypatch.setattr(failures, "_folders", lambda: [tmp_path])
    (tmp_path / f"leakscope-error-now-{os.getpid()}.log").symlink_to(tmp_path / "target")
    assert failures.write_log(RuntimeError(), command="list") is None
    assert not (tmp_path / "target").exists()


def _run(words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **options.pop("env", {})}  # type: ignore[dict-item]
    return subprocess.run(
        f"{sys.executable} -m leakscope {words}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        env=environment,
        check=False,
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--help", "list scenarios"])
def test_a_reader_who_leaves_is_no_error(words: str, unbuffered: str) -> None:
    done = _run(f"{words} | (exec 0<&-; sleep 0.1); exit ${{PIPESTATUS[0]}}", env={"PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_standard_output_that_is_full_is_one_line_and_2(unbuffered: str) -> None:
    done = _run("--help > /dev/full", env={"PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


@pytest.mark.parametrize("where", ["2> /dev/full", "2>&-", ">&-", ">&- 2>&-", "2> >(exec 0<&-)"])
def test_streams_that_are_closed_change_nothing(where: str) -> None:
    assert _run(f"--version {where}").returncode == 0
    assert _run(f"audit --workers x {where}").returncode == 2


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.slow),
        pytest.param({"PYTHONIOENCODING": "latin-1"}, marks=pytest.mark.slow),
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_a_terminal_without_unicode_gets_plain_text(environment: dict[str, str]) -> None:
    done = _run("list", env=environment)
    assert done.returncode == 0
    text = done.stdout.decode("latin-1")
    assert "Match ||g" in text
    done = _run("audit --workers 0", env=environment)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"must be >= 1" in done.stderr


def test_ascii_means_ascii() -> None:
    for words in ("list", "--help", "audit --help"):
        assert _run(words, env={"PYTHONIOENCODING": "ascii"}).stdout.decode("ascii")


def test_a_name_that_is_no_text_is_printed(tmp_path: Path) -> None:
    done = _run("report $'/no/\\xff-folder'", env={"PYTHONIOENCODING": "utf-8"})
    assert done.returncode == 4
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_the_code_of_an_audit_survives_a_reader_who_left(
    audit: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import sys; from leakscope.audits import run; from leakscope.report import SelfCheck; "
        "run.require_self_check = lambda: SelfCheck(name='planted', psnr=60.0, passed=True)\n"
        f"sys.argv = ['leakscope', 'audit', '--config', {str(tmp_path / 'c.yaml')!r}, '--quiet', "
        f"'--out', {str(tmp_path / 'piped')!r}]\n"
        "from leakscope.cli import main\nif __name__ == '__main__': main()\n"
    )
    (tmp_path / "piped.py").write_text(script)
    done = subprocess.run(
        f"{sys.executable} {tmp_path / 'piped.py'} | (exec 0<&-; sleep 0.1); exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr


def test_ctrl_c_prints_the_command_that_continues(audit: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "make_plan", stop)
    code, _, err = audit()
    assert code == 130
    (line,) = err.splitlines()
    assert "the same command continues: leakscope audit --config" in line
