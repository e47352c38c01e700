"""The Dockerfile: parsed, and its steps run one by one, as far as that is possible without docker."""

from __future__ import annotations

import fnmatch
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def test_the_image_runs_as_an_ordinary_user_and_starts_leakscope() -> None:
    found = _instructions()
    names = [name for name, _ in found]
    assert found[0] == ("FROM", "python:3.11-slim")
    assert "ADD" not in names
    user = next(value for name, value in found if name == "USER")
    assert user not in ("root", "0")
    assert f"--uid {user}" in " ".join(value for name, value in found if name == "RUN")
    assert max(place for place, name in enumerate(names) if name == "RUN") < names.index("USER")
    assert json.loads(dict(found)["ENTRYPOINT"]) == ["leakscope"]


def _copies() -> list[str]:
    return [source for name, value in _instructions() if name == "COPY" for source in value.split()[:-1]]


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored, "nothing goes into the image unless it is named"
    assert {line[1:] for line in ignored if line.startswith("!")} == set(_copies())
    for source in _copies():
        assert (ROOT / source).exists()
    assert not any(fnmatch.fnmatch(".git", line) and line != "*" for line in ignored)


def test_the_user_of_the_image_is_made_with_a_place_to_write() -> None:
    """Not run here: it would change the users of this machine."""
    (step,) = (value for name, value in _instructions() if name == "RUN" and "useradd" in value)
    user = next(value for name, value in _instructions() if name == "USER")
    made, _, place = step.partition(" && ")
    assert made.split() == ["useradd", "--create-home", "--uid", user, "leakscope"]
    assert place.split() == ["install", "-d", "-o", "leakscope", "-g", "leakscope", "/work"]
    assert [value for name, value in _instructions() if name == "WORKDIR"][-1] == "/work"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="leakscope-image-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@dataclass
class Build:
    """The image's file system below a folder, and what its instructions have set so far."""

    root: Path
    environment: dict[str, str]
    folder: str = "/"
    user: str = "0"
    words: tuple[str, ...] = ()

    @property
    def here(self) -> Path:
        return self.root / self.folder.lstrip("/")

    def follow(self, name: str, value: str) -> None:
        """Do what one instruction says, as far as it can be done without docker; an unknown one is an error."""
        if name == "FROM":
            subprocess.run([sys.executable, "-m", "venv", self.root / "venv"], check=True)
            self.environment["PATH"] = f"{self.root / 'venv' / 'bin'}:{os.environ['PATH']}"
        elif name in ("ARG", "ENV"):
            self.environment |= dict(part.split("=", 1) for part in shlex.split(value))
        elif name == "WORKDIR":
            self.folder = value
            self.here.mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            *sources, target = value.split()
            for source in sources:
                _copy(ROOT / source, self.here / target / ("" if (ROOT / source).is_file() else "."))
        elif name == "RUN":
            self._run(value)
        elif name == "USER":
            self.user = value
        elif name in ("ENTRYPOINT", "CMD"):
            self.words = (*self.words, *json.loads(value))
        else:
            raise AssertionError(f"the test does not know {name}")

    def _run(self, command: str) -> None:
        assert self.user == "0", "installed by an ordinary user"
        if command.startswith("useradd"):
            return
        # What torch weighs is in this environment already.
        done = self.start(["sh", "-c", f"{command} --no-deps"])
        assert done.returncode == 0, done.stderr

    def start(self, words: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self.root), "PIP_DISABLE_PIP_VERSION_CHECK": "1", **_index_settings()}
        return subprocess.run(
            words,
            cwd=self.here,
            env={**environment, **self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def _index_settings() -> dict[str, str]:
    """Where packages come from on this machine, which is no setting of the image."""
    return {name: value for name, value in os.environ.items() if name.startswith("PIP_") or "proxy" in name.lower()}


def _without_network(user: str) -> list[str] | None:
    """Words before a command that start it as `user` without a network; None where the system permits neither way."""
    ways = (
        ["unshare", "--net", "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"],
        ["unshare", "--user", f"--map-user={user}", "--net"],
    )
    probe = [sys.executable, "-c", "import os; print(os.getuid())"]
    for way in ways:
        if shutil.which(way[0]) and shutil.which("setpriv"):
            done = subprocess.run([*way, *probe], capture_output=True, text=True, check=False)
            if done.stdout.strip() == user:
                return way
    return None


@pytest.mark.slow
def test_the_steps_of_the_image_one_by_one(open_folder: Path, tmp_path: Path) -> None:
    fetched = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "hatchling", "-d", str(tmp_path)]
    if subprocess.run(fetched, capture_output=True, check=False).returncode:
        pytest.skip("no index of packages answers, so that nothing can be built")
    build = Build(open_folder, {"PYTHONPATH": ""})
    for name, value in _instructions():
        build.follow(name, value)
    assert build.words == ("leakscope", "--help")
    site = next((open_folder / "venv").glob("lib/python*/site-packages"))
    assert (site / "leakscope").is_dir(), "installed, not linked to the copied source"
    shutil.rmtree(open_folder / "opt")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    paths = os.pathsep.join([str(site), *libraries])
    done = build.start(build.words, PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    assert "leakscope audit" in done.stdout
    way = _without_network(build.user)
    if way is None:
        pytest.skip("installed and started; this system lets nobody become another user without network")
    where = "import leakscope, os, socket; print(leakscope.__file__, os.getuid(), socket.if_nameindex())"
    done = build.start([*way, str(open_folder / "venv" / "bin" / "python"), "-c", where], PYTHONPATH=paths)
    assert done.stdout.split()[:2] == [str(site / "leakscope" / "__init__.py"), build.user], done.stderr
    assert "eth" not in done.stdout
    done = build.start([*way, str(open_folder / "venv" / "bin" / "leakscope"), "doctor"], PYTHONPATH=paths)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "leakscope" in done.stdout


@pytest.mark.slow
def test_the_image_builds_where_docker_runs() -> None:
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no docker daemon here")
    subprocess.run(["docker", "build", "-q", "-t", "leakscope-test", str(ROOT)], check=True)
    words = ["docker", "run", "--rm", "--network", "none", "--read-only", "--tmpfs", "/tmp", "leakscope-test"]
    subprocess.run([*words, "doctor"], check=True)
