from __future__ import annotations

import sys
from pathlib import Path

# The page under test is rendered from the summaries of the report's own tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
