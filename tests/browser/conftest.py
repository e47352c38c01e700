from __future__ import annotations

import sys
from pathlib import Path

# The page under test is rendered from the summaries of the report's own tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
# One way to open a browser, for tests and for the pictures of the documentation.
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
