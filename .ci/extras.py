"""Import every package that an extra names, and the one place of leakscope that imports it: `make extras`."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torch
from packaging.requirements import Requirement

# Neither may report anything to anyone, here as elsewhere.
os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0")
NOT_FOR_USERS = {"all", "dev", "docs"}
# Packages that are imported by another name than they are installed by.
MODULES = {"grpcio": "grpc"}


def packages(distribution: str, extra: str) -> Iterator[str]:
    """What `distribution[extra]` asks for by name, with what an extra of that asks for in turn."""
    for line in metadata.requires(distribution) or ():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            continue
        if wanted.marker.evaluate({"extra": extra}):
            yield wanted.name
            for further in sorted(wanted.extras):
                yield from packages(wanted.name, further)


def without_compiled_torchvision() -> torch.library.Library | None:
    """Declare the two operators that torchvision asks for on import, where its compiled part does not load.

    The wheel on PyPI is built for CUDA and does not load beside a CPU torch. Models, transforms and datasets work
    without it; `torchvision.io.read_image` and `torchvision.ops.nms` do not.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        operators = torch.library.Library("torchvision", "FRAGMENT")
        operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        operators.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return operators
    return None


def importers(package: str) -> list[str]:
    """Modules of leakscope whose source imports `package`, at the top or inside a function."""
    return [module for module, found in _sources().items() if package in found]


@functools.cache
def _sources() -> dict[str, frozenset[str]]:
    root = Path(importlib.import_module("leakscope").__file__ or "").parent
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        found[module] = frozenset(_imported(ast.parse(path.read_text(encoding="utf-8"))))
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith("import_module"):
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value.split(".")[0]


def check_importers(package: str) -> str:
    """Where leakscope imports `package`: one file, or the files of one package; each of them is imported here."""
    modules = importers(package)
    for module in modules:
        importlib.import_module(module)
    if not modules:
        return "imported by no module yet"
    home = min(modules, key=len)
    if strangers := [module for module in modules if not f"{module}.".startswith(f"{home}.")]:
        raise ImportError(f"{package} is imported by {home} and by {', '.join(strangers)}")
    return f"imported by {home}"


def main() -> int:
    """Print one line for each package; 1 if one of them, or what imports it, cannot be imported."""
    warnings.simplefilter("ignore")
    operators = without_compiled_torchvision()  # kept: the declarations go with it
    failed = 0
    for extra in sorted(set(metadata.metadata("leakscope").get_all("Provides-Extra") or ()) - NOT_FOR_USERS):
        for package in packages("leakscope", extra):
            try:
                name = MODULES.get(package, package)
                importlib.import_module(name)
                remark = check_importers(name)
                if package == "torchvision" and operators:
                    remark += ", with two operators declared by hand"
            except Exception as error:
                failed, remark = 1, f"FAILED: {type(error).__name__}: {error}"
            print(f"{extra:12} {package:12} {metadata.version(package):10} {remark}".rstrip())
    return failed


if __name__ == "__main__":
    sys.exit(main())
