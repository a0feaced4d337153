"""Starts the process of one comparison and reads its result, or why there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from comparisons import Comparison

BENCHMARKS = Path(__file__).resolve().parents[1]
ENVIRONMENTS = {"jax": ".venv-peers-jax", "torch": ".venv-peers-torch"}


def command(comparison: Comparison, workspace: Path) -> list[str]:
    """The interpreter of the comparison's kind, and its program."""
    if comparison.kind in ENVIRONMENTS:
        python = workspace / ENVIRONMENTS[comparison.kind] / "bin" / "python"
        return [str(python), str(BENCHMARKS / "peers" / f"{comparison.kind}_worker.py")]
    return [sys.executable, str(BENCHMARKS / "suite" / "worker.py")]


def environment(comparison: Comparison) -> dict[str, str]:
    """bk_jax is found where this process found it; other frameworks see nothing of ours."""
    paths = [path for path in sys.path if "site-packages" not in path and "lib/python" not in path]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if comparison.kind == "torch":
        del variables["PYTHONPATH"]
    return variables


def run(comparison: Comparison, workspace: Path) -> dict[str, Any]:
    """The result, or {"error": ...}."""
    line = command(comparison, workspace)
    if not Path(line[0]).exists():
        return {"error": f"{ENVIRONMENTS[comparison.kind]} is not there; run tools/peers.py"}
    process = subprocess.run(
        line, input=json.dumps(comparison.as_dict()), capture_output=True, text=True,
        env=environment(comparison), check=False,
    )  # fmt: skip
    if process.returncode != 0:
        last = process.stderr.strip().splitlines()[-1:]  # earlier lines hold paths of this machine
        return {"error": f"exit code {process.returncode}: {' '.join(last)}"}
    return json.loads(process.stdout.splitlines()[-1])
