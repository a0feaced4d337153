"""The environment of the oldest JAX that bk_jax supports: .venv-oldest, from requirements-oldest.lock.

    python tools/oldest_jax.py [pytest arguments]

Makes the environment if it is not there or the lock changed, then runs pytest in it (default: the tests
of the transform and of random programs). The native module is switched off: XLA of that release refuses
the FFI version that the module is built for, and the pure-JAX twins take its place.
"""

from __future__ import annotations

import os
import subprocess
import sys

import environments
from environments import ROOT

LOCK = ROOT / "requirements-oldest.lock"
VENV = ROOT / ".venv-oldest"
PYTHON = environments.python_of(VENV)
TESTS = ("tests/transform", "tests/programs")


def make_environment() -> None:
    """Installs exactly what the lock says; does nothing when that is there already."""
    environments.make_environment(VENV, LOCK)


def pytest_command(*arguments: str) -> list[str]:
    return [str(PYTHON), "-m", "pytest", *arguments]


def environment() -> dict[str, str]:
    """Variables under which bk_jax is found in the checkout and runs without the native module."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "python"), "BK_JAX_NATIVE": "0"}


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    make_environment()
    command = pytest_command(*(sys.argv[1:] or TESTS))
    sys.exit(subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode)


if __name__ == "__main__":
    main()
