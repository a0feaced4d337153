"""The programs of benchmarks/ import their neighbours."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
for folder in ("paper", "steps", "ops", "suite", "trace"):
    sys.path.insert(0, str(BENCHMARKS / folder))
