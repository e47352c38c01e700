from __future__ import annotations

import sys
from pathlib import Path

# The suite imports test files without touching sys.path; helpers beside them need it.
sys.path.insert(0, str(Path(__file__).parent))
