"""The private folder of a cluster, and what is left when it goes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leakscope.runner import lock, ray_folder
from leakscope.runner.ray_folder import cluster_environment, cluster_folder
from leakscope.runner.ray_guard import TOKEN

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ray_folder, "_PARENT", tmp_path)
    return tmp_path


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folder_and_token_are_the_owners_alone_and_go(parent: Path) -> None:
    with cluster_folder() as folder:
        token = folder / "token"
        assert (folder.parent, _mode(folder), _mode(token)) == (parent, 0o700, 0o600)
        assert len(token.read_text()) == 64
    with cluster_folder() as other:
        assert (other / "token").read_text() != token
        assert not folder.exists()
    assert list(parent.iterdir()) == []


def _start(token: Path) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(SLEEP, env={**os.environ, TOKEN: str(token)})
    while SLEEP[-1].encode() not in Path(f"/proc/{child.pid}/cmdline").read_bytes():
        time.sleep(0.01)
    return child


def test_who_has_the_token_ends_with_the_folder_and_nobody_else(parent: Path) -> None:
    stranger = _start(parent / "another-token")
    try:
        with cluster_folder() as folder:
            member = _start(folder / "token")
        assert member.wait(timeout=10) == -9
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_folders_of_killed_runs_are_removed_and_those_of_living_ones_stay(parent: Path) -> None:
    abandoned = parent / "leakscope-ray-old"
    abandoned.mkdir()
    (abandoned / "lock").write_text('{"pid": 999999999, "start": 1, "boot": ""}')
    living = parent / "leakscope-ray-new"
    living.mkdir()
    orphan = _start(abandoned / "token")
    try:
        with lock.hold(living / "lock"), cluster_folder():
            assert orphan.wait(timeout=10) == -9
            assert not abandoned.exists()
            assert living.exists()
    finally:
        orphan.kill()


def test_the_environment_is_the_clusters_while_it_starts_and_the_users_afterwards(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of another cluster")
    monkeypatch.setenv("RAY_ADDRESS", "another cluster")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    before = dict(os.environ)
    with cluster_environment(parent):
        assert os.environ["RAY_AUTH_MODE"] == "token"
        assert os.environ[TOKEN] == str(parent / "token")
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
        assert not {"RAY_AUTH_TOKEN", "RAY_ADDRESS"} & set(os.environ)
    assert dict(os.environ) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from leakscope.runner import ray_folder
ray_folder._PARENT = Path(sys.argv[1])
with ray_folder.cluster_folder() as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_leaves_no_folder(parent: Path) -> None:
    found = subprocess.run([sys.executable, "-c", KILLED, str(parent)], stdout=subprocess.PIPE, text=True, check=False)
    assert found.returncode == -9
    until = time.monotonic() + 30
    while Path(found.stdout.strip()).exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert list(parent.iterdir()) == []
