"""What users write, checked; without torch, so that mistakes are told at once."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """What a user writes: a name that is not known is a mistake, and so is a number that is none."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PlannedAttack(Settings):
    """An attack at `steps` `of` its own steps, from `restarts` starts; None leaves those as they are."""

    steps: Positive
    of: Positive
    restarts: Positive | None = None

    @model_validator(mode="after")
    def _not_longer(self) -> PlannedAttack:
        if self.steps > self.of:
            raise ValueError(f"an attack is never made longer: steps must be at most {self.of}, got {self.steps}")
        return self


class Planned(Settings):
    """What a budget came to: the length of each attack, and the cells there was no time for, by label."""

    attacks: dict[str, PlannedAttack] = {}
    left_out: tuple[str, ...] = ()
