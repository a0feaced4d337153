"""The only place where a tolerance is computed, and where a mismatch is described."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np


def eps(dtype: Any) -> float:
    """The distance from 1 to the next number."""
    return float(jnp.finfo(dtype).eps)


def gradient_rtol(dtype: Any, *lengths: int) -> float:
    """Relative error of a gradient that went through sums of the given lengths.

    Rounding errors add up like a random walk along each sum; the constant stands for the
    elementwise functions before and after. For a batch of 8 and layers of width 100 it gives 2e-5
    in float32. In float64 there is room for badly conditioned losses, too: 1e-12 at least.
    """
    floor = 1e-12 if jnp.dtype(dtype) == jnp.float64 else 0.0
    return max(floor, eps(dtype) * (48 + 8 * math.sqrt(sum(lengths))))


def norm_rtol(dtype: Any) -> float:
    """Relative error allowed in a reported norm."""
    exact = {"float64": 1e-12, "float32": 1e-5}
    return exact.get(jnp.dtype(dtype).name, 16 * eps(dtype))


def assert_within(actual: Any, expected: Any, bound: Any, what: str) -> None:
    """`|actual - expected| <= bound` for every element; the worst one is printed otherwise.

    Elements that are not finite must be equal.
    """
    actual = np.asarray(actual).astype(np.float64)
    expected = np.asarray(expected).astype(np.float64)
    assert actual.shape == expected.shape, f"{what}: {actual.shape} != {expected.shape}"
    bound = np.broadcast_to(np.asarray(bound, np.float64), expected.shape)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite], err_msg=what)
    error = np.where(finite, np.abs(actual - np.where(finite, expected, 0)), 0)
    error = np.where(np.isnan(error), np.inf, error)  # a NaN where a number is expected
    if not np.any(error > bound):
        return
    excess = error / np.maximum(bound, np.finfo(np.float64).tiny)
    worst = np.unravel_index(int(np.argmax(excess)), error.shape)
    raise AssertionError(
        f"{what}: {np.sum(error > bound)} of {error.size} elements are off. The worst, at "
        f"{tuple(int(i) for i in worst)}: got {actual[worst]!r}, expected {expected[worst]!r}, "
        f"error {error[worst]:.3g}, allowed {bound[worst]:.3g}."
    )


def assert_bits_equal(actual: Any, expected: Any, what: str = "") -> None:
    """The same bits, NaN included."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype, what
    assert actual.shape == expected.shape, what
    assert actual.tobytes() == expected.tobytes(), f"{what}: {actual} != {expected}"
