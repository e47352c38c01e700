"""Clients that hang, die or raise, in a module of their own: another process must be able to import it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from leakscope.federated import Client, Reply


@dataclass
class Hanging(Client):
    """Never answers at one place: the sleep is far longer than any test."""

    hangs_at: str = "train"

    def take_part(self, model, experiment, *, round) -> Reply:
        """Hang, or as always."""
        if self.hangs_at == "train":
            time.sleep(60)
        return super().take_part(model, experiment, round=round)

    def validate(self, model, experiment, *, round) -> float:
        """Hang, or as always."""
        if self.hangs_at == "validate":
            time.sleep(60)
        return super().validate(model, experiment, round=round)


@dataclass
class Dying(Client):
    """Takes its process along."""

    def take_part(self, model, experiment, *, round) -> Reply:
        """Gone."""
        os._exit(7)


@dataclass
class Failing(Client):
    """Raises."""

    def take_part(self, model, experiment, *, round) -> Reply:
        """As a bug would."""
        raise ConnectionError("the line is dead")
