"""Different models to different clients: a fingerprint that clients compare.

A server that sends each client a model of its own can single one out, or undo secure aggregation (Pasquini, Francati,
Ateniese: Eluding Secure Aggregation in Federated Learning via Model Inconsistency, CCS 2022). No client sees that
alone; two that compare a fingerprint do.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from leakscope.inspection.detector import Detector
from leakscope.inspection.finding import Measured
from leakscope.inspection.received import Received
from leakscope.types import Tensors


def fingerprint(tensors: Tensors) -> str:
    """SHA-256 of names, types, shapes and values; the order of the names does not matter.

    Example:
        >>> one = fingerprint({"w": torch.zeros(2)})
        >>> one == fingerprint({"w": torch.zeros(2)}), one == fingerprint({"w": torch.ones(2)})
        (True, False)
    """
    return _digest(tensors, with_values=True)


def structure_hash(tensors: Tensors) -> str:
    """SHA-256 of names, types and shapes alone: the same for all models of one architecture."""
    return _digest(tensors, with_values=False)


@dataclass(frozen=True)
class SameForAll(Detector):
    """Compares the model's fingerprint with those that other clients report."""

    name = "same-for-all"
    meaning = (
        "The server sent another model to at least one other client. A model of one's own singles a client out: what "
        "it sends can be told from all others, even under secure aggregation."
    )
    advice = "Do not train. Compare fingerprints with the other clients, and let the server publish the right one."

    def lacks(self, received: Received) -> str:
        """Fingerprints of others."""
        return "" if received.hashes else "the fingerprints that other clients got"

    def measure(self, received: Received) -> list[Measured]:
        """How many of the reported fingerprints differ."""
        own = fingerprint(received.tensors)
        others = [place for place, other in enumerate(received.hashes) if other.strip().lower() != own]
        told = f"own fingerprint {own[:16]}…"
        return [Measured("other_fingerprints", float(len(others)), places=tuple(others), detail=told)]


def _digest(tensors: Tensors, *, with_values: bool) -> str:
    found = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name]
        found.update(f"{name}\0{value.dtype}\0{list(value.shape)}\0".encode())
        if with_values:
            found.update(_bytes(value))
    return found.hexdigest()


def _bytes(value: Tensor) -> memoryview:
    flat = value.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
