"""Running Python code in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import bk_jax

PACKAGE = Path(bk_jax.__file__).parents[1]
TESTS = Path(__file__).parents[1]


def run_python(
    code: str, *, timeout: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program with the package under test; a failure or a hang fails the test."""
    paths = [str(PACKAGE), str(TESTS), os.environ.get("PYTHONPATH", "")]
    inherited = {k: v for k, v in os.environ.items() if k != "BK_JAX_NATIVE"}
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        env=inherited | {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | environment,
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, (
        f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
    )
    return result
