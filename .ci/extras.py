"""Import every package that an extra of leakscope names, and print its version: `make extras`."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata

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


def main() -> int:
    """Print one line for each package; 1 if one of them cannot be imported."""
    warnings.simplefilter("ignore")
    operators = without_compiled_torchvision()  # kept: the declarations go with it
    failed = 0
    for extra in sorted(set(metadata.metadata("leakscope").get_all("Provides-Extra") or ()) - NOT_FOR_USERS):
        for package in packages("leakscope", extra):
            try:
                importlib.import_module(MODULES.get(package, package))
                remark = "with two operators declared by hand" if package == "torchvision" and operators else ""
            except Exception as error:
                failed, remark = 1, f"FAILED: {type(error).__name__}: {error}"
            print(f"{extra:12} {package:12} {metadata.version(package):10} {remark}".rstrip())
    return failed


if __name__ == "__main__":
    sys.exit(main())
