"""Starts the process of one comparison and reads its result, or why there is none.

A process that takes longer than the comparison may is killed; what it had printed by then counts, and
so it does if the system killed it, as it does where memory ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.suite.comparisons import Comparison

ROOT = Path(__file__).resolve().parents[2]
WORKSPACE = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", ROOT))
ENVIRONMENTS = {"jax": ".venv-peers-jax", "torch": ".venv-peers-torch"}


def command(comparison: Comparison, workspace: Path) -> list[str]:
    """The interpreter of the comparison's kind, and its program."""
    if comparison.kind in ENVIRONMENTS:
        return peer(comparison.kind, f"{comparison.kind}_worker", workspace)
    return [sys.executable, "-m", "benchmarks.suite.worker"]


def peer(kind: str, program: str, workspace: Path) -> list[str]:
    """The interpreter of another library's environment, and a program of benchmarks/peers."""
    python = workspace / ENVIRONMENTS[kind] / "bin" / "python"
    return [str(python), "-m", f"benchmarks.peers.{program}"]


def environment(kind: str) -> dict[str, str]:
    """Modules are found where this process found them; other frameworks see our sources alone."""
    paths = [path for path in sys.path if "site-packages" not in path and "lib/python" not in path]
    if kind == "torch":
        paths = [str(ROOT), str(ROOT / "python")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def stopped(output: bytes | str | None, when: str, nothing: str) -> dict[str, Any]:
    """What a process had found before it was stopped: workers print all of it after every step."""
    text = output.decode() if isinstance(output, bytes) else output or ""
    whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    found = json.loads(whole[-1]) if whole else {"error": nothing}
    return {**found, "stopped": when}


def run(comparison: Comparison, workspace: Path) -> dict[str, Any]:
    """The result, or {"error": ...}."""
    line = command(comparison, workspace)
    if not Path(line[0]).exists():
        return {"error": f"{ENVIRONMENTS[comparison.kind]} is not there; run tools/peers.py"}
    try:
        process = subprocess.run(
            line, input=json.dumps(comparison.as_dict()), capture_output=True, text=True,
            env=environment(comparison.kind), check=False, timeout=60 * comparison.minutes,
        )  # fmt: skip
    except subprocess.TimeoutExpired as expired:
        when = f"after {comparison.minutes:g} minutes"
        return stopped(expired.stdout, when, "nothing was found in time")
    if process.returncode == -signal.SIGKILL:
        return stopped(process.stdout, "by the system", "memory ended before anything was found")
    if process.returncode != 0:
        last = process.stderr.strip().splitlines()[-1:]  # earlier lines hold paths of this machine
        return {"error": f"exit code {process.returncode}: {' '.join(last)}"}
    return json.loads(process.stdout.splitlines()[-1])
