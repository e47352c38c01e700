"""What a server sees: scenarios, checks of the update, and whether it is what it was declared to be."""

from __future__ import annotations

from leakscope.observation.observe import observe, observe_many
from leakscope.observation.restrict import restrict
from leakscope.observation.scenario import SCENARIOS, Scenario, check_needs, get_scenario

__all__ = ["SCENARIOS", "Scenario", "check_needs", "get_scenario", "observe", "observe_many", "restrict"]
