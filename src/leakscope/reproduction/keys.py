"""What a cell's key covers beside its spec: software, sources and every example that it reads (no stale result)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from leakscope import data
from leakscope.audits.inputs import changed
from leakscope.audits.own_code import hash_code
from leakscope.reproduction.cells import RecipeCell
from leakscope.reproduction.networks import find_weights
from leakscope.reproduction.trainings import load_training
from leakscope.runner import Cell
from leakscope.runner.cells import canonical_json
from leakscope.software import software
from leakscope.types import Batch
from leakscope.version import __version__

# Of this package, the files that compute; `leakscope.software` leaves the package out.
_WORKERS = ("work.py", "trainings.py", "networks.py")
# What decides which examples are read.
_READING = ("kind", "data", "split", "size", "indices", "training", "reads_data")


def seal_cell(cell: RecipeCell) -> Cell:
    """The cell as the runner knows it."""
    plain = dict(cell.spec)
    spec = {**plain, "software": software(), "sources": hash_sources(plain), "reads": hash_reads(plain)}
    return Cell.of(spec, code_version=__version__, label=cell.name)


def check_unchanged(spec: Mapping[str, Any]) -> None:
    """Refuse to compute with other software, sources or data than the cell's key names."""
    if spec["software"] != software():
        raise changed("leakscope, or a library that it computes with,")
    if spec["sources"] != hash_sources(spec):
        raise changed("the source of a recipe, or what it imports,")
    if spec["reads"] != hash_reads(spec):
        raise changed("the data that a recipe reads")


def hash_sources(spec: Mapping[str, Any]) -> str:
    """Hash of this package's own workers, and of the recipe's functions with what they import."""
    digest = hashlib.sha256()
    for name in _WORKERS:
        digest.update((Path(__file__).parent / name).read_bytes())
    named = (spec.get("function"), _network(spec).get("name"))
    digest.update((hash_code(name for name in named if name) or "").encode())
    return digest.hexdigest()[:32]


def hash_reads(spec: Mapping[str, Any]) -> str:
    """Hash of every example and every file of weights that the cell reads."""
    network = _network(spec)
    told = {name: spec[name] for name in _READING if name in spec}
    return _hash_examples(
        canonical_json(
            {**told, "trained": network.get("trained"), "weights": network.get("options", {}).get("weights")}
        )
    )


def _network(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The network of a cell; that of a function is its setting `model`."""
    return spec.get("network") or (spec.get("settings") or {}).get("model") or {}


@lru_cache(maxsize=4_096)
def _hash_examples(told: str) -> str:
    spec = json.loads(told)
    digest = hashlib.sha256()
    for batch in _read(spec):
        for values in (batch.inputs, batch.targets):
            digest.update(f"{values.dtype} {list(values.shape)}".encode())
            digest.update(values.contiguous().numpy().tobytes())
    if spec["weights"] is not None:
        digest.update(find_weights(spec["weights"]).read_bytes())
    return digest.hexdigest()[:32]


def _read(spec: Mapping[str, Any]) -> list[Batch]:
    batches = load_victims(spec) if spec["kind"] == "attack" else []
    for how in (spec.get("training"), spec["trained"]):
        if how is not None:
            subject = load_training(how)
            batches += [*subject.clients, subject.test]
    return batches + [data.load(**one) for one in spec.get("reads_data", ())]


def load_victims(spec: Mapping[str, Any]) -> list[Batch]:
    """The private batches of an attack cell, in its order."""
    size = tuple(spec["size"]) if isinstance(spec["size"], list) else spec["size"]
    return [data.load(spec["data"], split=spec["split"], indices=batch, size=size) for batch in spec["indices"]]
