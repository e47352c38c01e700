"""Figures of the source: how it is cut, and how much has to be read to understand one attack.

    python benchmarks/house.py                 # the working tree
    python benchmarks/house.py v0.1.0          # a git revision
    python benchmarks/house.py ../other-clone  # another tree
    python benchmarks/house.py --graph         # draw docs/explanation/import-graph.md again

Lines are counted with blanks and docstrings. An import counts if it runs, at the top of a file or inside a function;
imports for type checkers alone do not.

What has to be read for an attack is everything its file imports, directly or not, among the parts that hold the
method: `attacks`, `matching`, `client` and the base classes `attack` and `defence`. Vocabulary that a reader looks up
rather than reads (types, errors, tensors, random numbers, scenarios, networks) is left out, and so is the compiler that
computes the same gradient faster. A name that a package passes on is read where it is defined, not in the package.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from import_graph import page

PACKAGE = "leakscope"
METHOD = ("attacks", "matching", "client", "attack", "defence")
# The compiler, by its names then and now.
FASTER = ("matching.structured", "fastgrad")
ATTACK = f"{PACKAGE}.attacks.inverting_gradients"
ROOT = Path(__file__).resolve().parents[1]
GRAPH = ROOT / "docs" / "explanation" / "import-graph.md"


@dataclass(frozen=True)
class House:
    """The source of the package: module name → text of its file."""

    sources: Mapping[str, str]

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """Each module, parsed."""
        return {module: ast.parse(source) for module, source in self.sources.items()}

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Each module and the modules of the package that it imports when it runs."""
        return {module: set(self._imported(module)) - {module} for module in self.sources}

    def lines(self, module: str) -> int:
        """Length of a module's file."""
        return len(self.sources[module].splitlines())

    def to_read(self, attack: str) -> list[str]:
        """The files that explain `attack`, itself first; see the top of this file."""
        found, waiting = [], [attack]
        while waiting:
            module = waiting.pop(0)
            if module not in found and _explains(module):
                found.append(module)
                waiting += sorted(set(self._defining(module)) - {module})
        return found

    def parts(self) -> dict[str, frozenset[str]]:
        """The imports between the files and folders directly below the package; its own front door is left out."""
        found: dict[str, set[str]] = {_part(module): set() for module in self.sources if module != PACKAGE}
        for module, imported in self.imports.items():
            if module != PACKAGE:
                found[_part(module)] |= {_part(each) for each in imported - {PACKAGE}} - {_part(module)}
        return {part: frozenset(imported) for part, imported in found.items()}

    def _imported(self, module: str) -> Iterator[str]:
        return (imported for imported, _name in self._names(module))

    def _defining(self, module: str) -> Iterator[str]:
        """What `module` imports, each name from the file that defines it."""
        for imported, name in self._names(module):
            passed_on = (origin for origin, own in self._names(imported) if name is not None and own == name)
            yield next(passed_on, imported)

    def _names(self, module: str) -> Iterator[tuple[str, str | None]]:
        """Modules that are imported and the name taken from each; None where it is the module itself."""
        for node in _running(self.trees[module]):
            if isinstance(node, ast.Import):
                yield from ((alias.name, None) for alias in node.names if alias.name in self.sources)
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (inner := f"{node.module}.{alias.name}") in self.sources:
                        yield inner, None
                    elif node.module in self.sources:
                        yield str(node.module), alias.name


def _running(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement but those for type checkers alone."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        below: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            below = node.orelse
        # Imports are never inside an expression, and expressions are most of a file.
        waiting += [child for child in below if not isinstance(child, ast.expr)]


def _part(module: str) -> str:
    return module.split(".")[1]


def _explains(module: str) -> bool:
    inside = module.removeprefix(f"{PACKAGE}.")
    return _part(module) in METHOD and not inside.startswith(FASTER)


def load(where: str) -> House:
    """The package in a folder, or in a git revision of this repository where no such folder exists."""
    if Path(where).is_dir():
        files = {path.relative_to(where).as_posix(): path.read_text() for path in Path(where).glob("src/**/*.py")}
    else:
        archive = subprocess.run(["git", "archive", where, "src"], cwd=ROOT, capture_output=True, check=False)
        if archive.returncode:
            sys.exit(f"expected a folder or a git revision, got {where!r}: {archive.stderr.decode().strip()}")
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            python = {member.name: tar.extractfile(member) for member in tar if member.name.endswith(".py")}
            files = {name: file.read().decode() for name, file in python.items() if file}
    start = f"src/{PACKAGE}/"
    sources = {_module(name.removeprefix("src/")): text for name, text in files.items() if name.startswith(start)}
    if not sources:
        sys.exit(f"expected Python files below {start}, found none in {where!r}")
    return House(dict(sorted(sources.items())))


def _module(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def figures(house: House) -> dict[str, float]:
    """The figures that are printed, by name."""
    lengths = [house.lines(module) for module in house.sources]
    functions = [
        node.end_lineno - node.lineno + 1
        for tree in house.trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    importers = Counter(each for imported in house.imports.values() for each in imported)
    return {
        "files": len(lengths),
        "lines": sum(lengths),
        "median file": statistics.median(lengths),
        "median function": statistics.median(functions),
        "files under 50 lines": sum(length < 50 for length in lengths),
        "files over 250 lines": sum(length > 250 for length in lengths),
        "modules with one importer": sum(count == 1 for count in importers.values()),
    }


def main() -> None:
    """Print the figures, or draw the graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", nargs="?", default=str(ROOT), help="a folder or a git revision; this tree by default")
    parser.add_argument("--graph", action="store_true", help=f"write {GRAPH.relative_to(ROOT)} instead")
    options = parser.parse_args()
    house = load(options.where)
    if options.graph:
        GRAPH.write_text(page(house.parts()), encoding="utf-8")
        return
    for name, value in figures(house).items():
        print(f"{name:28} {value:9,.0f}")
    reading = house.to_read(ATTACK)
    print(f"{'to read for one attack':28} {len(reading):9,} files, {sum(map(house.lines, reading)):,} lines")
    for module in reading:
        print(f"    {module:52} {house.lines(module):5}")


if __name__ == "__main__":
    main()
