"""Fixtures of the tests of examples."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture
def quick_compiles():
    """For programs that run once or twice: little optimisation, and no second trace to find leaks."""
    jax.config.update("jax_disable_most_optimizations", True)
    with jax.check_tracer_leaks(False):
        yield
    jax.config.update("jax_disable_most_optimizations", False)
