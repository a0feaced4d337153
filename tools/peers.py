"""Environments of the libraries that bk_jax is compared with: .venv-peers-jax and .venv-peers-torch.

    python tools/peers.py [jax] [torch]

Each is made from its lock, requirements-peers-*.lock, if it is not there or the lock changed. The first
takes 1.5 GB; it also holds transformers, for Hugging Face's Flax classes, Keras, keras-hub, Grain,
datasets and pytest, for tests/peers and tests/zoo, dm-haiku and equimo. The second takes 5 GB: torch
does not load without the CUDA libraries that its wheel names. Who has a CPU wheel of the same version
(PIP_FIND_LINKS, PIP_INDEX_URL) still gets those libraries, unused.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from environments import ROOT, make_environment, python_of

NAMES = ("jax", "torch")
TESTS = ("tests/peers", "tests/zoo")
# What takes little: all but the values of most models of the zoo. 114 CPU seconds (AMD EPYC, Zen 5).
QUICK = (*TESTS, "-m", "not slow")


def venv_of(name: str) -> Path:
    """The folder of an environment."""
    return ROOT / f".venv-peers-{name}"


def make(name: str) -> None:
    """Installs exactly what the lock says; does nothing when that is there already."""
    make_environment(venv_of(name), ROOT / f"requirements-peers-{name}.lock")


def pytest_command(*arguments: str) -> list[str]:
    """Runs the tests that need the libraries of the first environment: all, or those named."""
    return [str(python_of(venv_of("jax"))), "-m", "pytest", *(arguments or TESTS)]


def test_environment() -> dict[str, str]:
    """Variables under which bk_jax is found in the checkout."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "python")}


def main() -> None:
    wanted = sys.argv[1:] or list(NAMES)
    if not set(wanted) <= set(NAMES):
        sys.exit(f"{__doc__}\nenvironments are {' and '.join(NAMES)}")
    for name in wanted:
        make(name)


if __name__ == "__main__":
    main()
