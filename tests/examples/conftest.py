"""The examples are scripts: they find each other, and tests find them, on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), *(str(path) for path in EXAMPLES.iterdir() if path.is_dir())]


@pytest.fixture
def quick_compiles():
    """For programs that run once or twice: little optimisation, and no second trace to find leaks."""
    jax.config.update("jax_disable_most_optimizations", True)
    with jax.check_tracer_leaks(False):
        yield
    jax.config.update("jax_disable_most_optimizations", False)
