"""Fixtures of the tests of examples."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture
def quick_compiles():
    """For programs that run once or twice: little optimisation."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
