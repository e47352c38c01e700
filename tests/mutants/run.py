"""Put wrong formulas into a copy of the source, one at a time, and see which test notices: `make mutants`.

    cd tests && python -m mutants.run               # all; writes docs/explanation/mutants.md
    cd tests && python -m mutants.run --only CPL --jobs 1
    cd tests && python -m mutants.run --files defences operations   # these rows of the page; the others stay

The tests of all mutants must pass on the source as it is, or nothing is said. A finished mutant is kept under
runs/mutants and not tried again until source or tests change, so that a killed run continues where it stopped.
Exit code 1: fewer than 95 % were noticed, or one that must be was not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

# Imported once for all forks: they take longer than most tests. leakscope itself must not be among them.
import pydantic
import pytest
import scipy.optimize
import torch

from mutants import ALL, Mutant

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "runs" / "mutants"
PAGE = ROOT / "docs" / "explanation" / "mutants.md"
# Seconds for the tests of one mutant; a mutant that never ends is noticed too.
PATIENCE = 240
ENOUGH = 0.95
UNNOTICED = "**nothing**"


@dataclass(frozen=True)
class Verdict:
    """How one mutant ended: `noticed_by` is the first test that failed, empty where none did."""

    name: str
    noticed_by: str
    seconds: float


_SHARED = (pydantic, scipy.optimize, torch)


def main() -> None:
    """Try the chosen mutants and print, or write, the table."""
    args = parse()
    chosen = choose(ALL, words=args.only, files=args.files)
    if not chosen:
        raise SystemExit("no mutant of that name, or in those files")
    check_places(chosen)
    if not args.skip_clean:
        check_clean(chosen)
    kept = KEPT / f"{fingerprint()}.jsonl"
    done = {} if args.again else remember(kept)
    left = [one for one in chosen if one.name not in done]
    say(f"{len(chosen)} mutants, {len(chosen) - len(left)} known from before")
    began = time.monotonic()
    with ThreadPoolExecutor(args.jobs) as pool:
        for place, verdict in enumerate(pool.map(try_mutant, left), start=1):
            done[verdict.name] = verdict
            keep(kept, verdict)
            remaining = (time.monotonic() - began) / place * (len(left) - place)
            how = verdict.noticed_by or "NOT NOTICED"
            say(f"[{place}/{len(left)}] {verdict.name}: {how} ({verdict.seconds:.0f} s; {remaining:.0f} s left)")
    report(chosen, done, write=not args.only)


def choose(mutants: Iterable[Mutant], *, words: Sequence[str] | None, files: Sequence[str] | None) -> list[Mutant]:
    """Those whose name has one of the words and whose file begins as one of `files`; None asks for nothing."""
    return [
        one
        for one in mutants
        if (not words or any(word in one.name for word in words)) and (not files or one.file.startswith(tuple(files)))
    ]


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Try wrong formulas.")
    parser.add_argument("--only", nargs="+", help="words of the names of mutants")
    parser.add_argument("--files", nargs="+", help="beginnings of file names, such as defences")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="try finished mutants again")
    parser.add_argument("--skip-clean", action="store_true", help="do not run the tests on the source as it is first")
    return parser.parse_args()


def fingerprint() -> str:
    """Hash of everything a verdict can depend on."""
    digest = hashlib.sha256()
    for folder in ("src/leakscope", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def check_places(mutants: Iterable[Mutant]) -> None:
    """Insist that every mutant still has its one place."""
    for one in mutants:
        count = (ROOT / "src/leakscope" / one.file).read_text(encoding="utf-8").count(one.old)
        if count != 1:
            raise SystemExit(f"{one.name}: {one.old!r} occurs {count} times in {one.file}, expected once")


def check_clean(mutants: Sequence[Mutant]) -> None:
    """Insist that the tests pass on the source as it is."""
    files = sorted({test for one in mutants for test in one.tests})
    say(f"the source as it is: {len(files)} test files")
    code, output = run_tests(files, ROOT / "src", stop=False, patience=4 * PATIENCE)
    if code != 0:
        raise SystemExit("tests fail on the source as it is:\n" + output[-2_000:])


def try_mutant(one: Mutant) -> Verdict:
    """Run its tests on a copy of the source with the wrong formula."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = source / "leakscope" / one.file
        path.write_text(path.read_text(encoding="utf-8").replace(one.old, one.new), encoding="utf-8")
        code, output = run_tests(one.tests, source, stop=True, patience=PATIENCE)
    return Verdict(one.name, _noticed(one, code, output), time.monotonic() - began)


def _noticed(one: Mutant, code: int, output: str) -> str:
    if code == 0:
        return ""
    if code == -1:
        return "does not end"
    found = re.search(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", output, re.MULTILINE)
    if code != 1 or found is None:
        raise SystemExit(f"{one.name}: its tests did not run (exit {code}):\n{output[-2_000:]}")
    return found.group(1)


def run_tests(tests: Sequence[str], source: Path, *, stop: bool, patience: float) -> tuple[int, str]:
    """Exit code and output of the named tests with `source` in place of the installed package; −1: not ended.

    In a fork: importing torch takes longer than most of the tests.
    """
    places = [str(ROOT / "tests" / test) for test in tests]
    options = ["-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", *places, *["-x"] * stop]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        child = os.fork()
        if child == 0:
            _become_pytest(options, source, output.fileno())
        code = _wait(child, patience)
        output.seek(0)
        return code, output.read()


def _become_pytest(options: list[str], source: Path, output: int) -> NoReturn:
    code = 3
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(ROOT)
        sys.path.insert(0, str(source))
        # What a test starts as a process of its own must find the same source.
        os.environ |= {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        code = int(pytest.main(options))
        sys.stdout.flush()
    finally:
        os._exit(code)


def _wait(child: int, patience: float) -> int:
    """The exit code of a child, or −1 where it had to be killed."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def remember(path: Path) -> dict[str, Verdict]:
    """Verdicts of an earlier run on the same source and tests; a torn last line is ignored."""
    found: dict[str, Verdict] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            verdict = Verdict(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue
        found[verdict.name] = verdict
    return found


def keep(path: Path, verdict: Verdict) -> None:
    """Add a verdict to those that are kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(verdict), ensure_ascii=False) + "\n")


def report(mutants: Sequence[Mutant], done: dict[str, Verdict], *, write: bool) -> None:
    """Print the count and the survivors, write the page, and leave with the exit code."""
    noticed = [one for one in mutants if done[one.name].noticed_by]
    alive = [one for one in mutants if not done[one.name].noticed_by]
    print(f"{len(noticed)} of {len(mutants)} wrong formulas noticed ({len(noticed) / len(mutants):.1%})")
    for one in alive:
        print(f"not noticed: {one.name} ({one.file}): {one.survives or 'a test is missing'}")
    if write:
        before = read_rows(PAGE)
        rows = before | {one.name: row(one, done[one.name].noticed_by) for one in mutants}
        PAGE.write_text("\n".join(page([rows[one.name] for one in ALL if one.name in rows])) + "\n", encoding="utf-8")
    enough = len(noticed) >= ENOUGH * len(mutants)
    sys.exit(0 if enough and all(one.survives for one in alive) else 1)


def row(one: Mutant, noticed_by: str) -> str:
    """A line of the table in docs."""
    by = f"`{noticed_by}`" if noticed_by else f"{UNNOTICED}: {one.survives}"
    return f"| {one.name} | `{one.file}` | {by} |"


def read_rows(page: Path) -> dict[str, str]:
    """The rows that a page has, by the names of their mutants; none of a page that is not there."""
    lines = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines if " | `" in line}


def page(rows: Sequence[str]) -> list[str]:
    """The page of these rows."""
    noticed = sum(UNNOTICED not in one for one in rows)
    return [
        "# Wrong formulas that the tests notice",
        "",
        "A test that passes on a wrong formula proves nothing. `make mutants` puts each of these mistakes into a copy",
        "of the source, a sign, a factor, a square, the wrong tensors or a wrong published setting, and runs the",
        f"tests that should notice. Of {len(rows)} mistakes {noticed} were noticed. That command writes this page.",
        "",
        "| wrong formula | file | noticed by |",
        "|---|---|---|",
        *rows,
    ]


def say(text: str) -> None:
    """Progress goes to standard error, so that the table can be redirected."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
