"""Optimized strategies without the library that optimizes; beside it in tests/peers."""

from __future__ import annotations

import re
import sys
import types

import jax.numpy as jnp
import pytest

from bk_jax.mechanisms import BandedToeplitz, BufferedToeplitz

NEEDED = re.escape('the package jax_privacy: pip install "bk_jax[mechanisms]" brings it.')


@pytest.fixture
def stand_in(monkeypatch):
    """Something with jax_privacy's functions, that says what it was asked."""
    asked = []
    toeplitz = types.SimpleNamespace(
        optimize_banded_toeplitz=lambda **how: asked.append(how) or jnp.asarray([0.5, 0.25])
    )
    found = types.SimpleNamespace(buf_decay=jnp.asarray([0.5]), output_scale=jnp.asarray([0.25]))
    buffered = types.SimpleNamespace(optimize=lambda **how: asked.append(how) or found)
    for name, module in {"toeplitz": toeplitz, "buffered_toeplitz": buffered}.items():
        monkeypatch.setitem(sys.modules, f"jax_privacy.matrix_factorization.{name}", module)
    for name in ("jax_privacy", "jax_privacy.matrix_factorization"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    return asked


@pytest.mark.parametrize(
    "make", [lambda: BandedToeplitz.optimized(2, 8), lambda: BufferedToeplitz.optimized(8)]
)
def test_the_extra_is_named_when_it_is_missing(monkeypatch, make):
    monkeypatch.setitem(sys.modules, "jax_privacy", None)
    with pytest.raises(ImportError, match=NEEDED):
        make()


def test_only_numbers_are_taken(stand_in):
    assert BandedToeplitz.optimized(2, 8, error="max") == BandedToeplitz((0.5, 0.25))
    assert BufferedToeplitz.optimized(8, max_buffers=3) == BufferedToeplitz((0.5,), (0.25,))
    banded, buffered = stand_in
    assert (banded["n"], banded["bands"], banded["reduction_fn"]) == (8, 2, jnp.max)
    expected = {"n": 8, "min_sep": 1, "max_participations": 1, "max_buffers": 3, "error": "max"}
    assert buffered == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: BandedToeplitz.optimized(9, 8),
            "bands must be at most steps, got bands=9 for steps=8",
        ),
        (lambda: BandedToeplitz.optimized(2, 8, error="sum"), "error must be one of 'mean', 'max'"),
        (
            lambda: BufferedToeplitz.optimized(8, separation=0),
            "separation must be a whole number of at",
        ),
        (
            lambda: BufferedToeplitz.optimized(8, max_buffers=16),
            "max_buffers must be at most 15, got 16",
        ),
        (lambda: BufferedToeplitz.optimized(8, max_participations=0), "max_participations must be"),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
