"""Rounding to integers of a bounded norm: the sum of squares is exact, and the bound holds always."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bk_jax.mechanisms.rounding import fits, to_grid

LARGEST = 2**24 - 1
fits = jax.jit(fits, static_argnums=1)
SIZES = ((300,), (2, 3), ())


def squares(arrays):
    return sum(int(q) ** 2 for array in arrays for q in np.ravel(array))


def arrays_of(seed, largest):
    rng = np.random.default_rng(seed)
    return [rng.integers(-largest, largest + 1, size).astype(np.int32) for size in SIZES]


@pytest.mark.parametrize("largest", [1, 3, 4095, 4096, 100_000, 900_000])
def test_the_sum_of_squares_is_compared_exactly(largest):
    """At the sum itself, one below and one above."""
    arrays = arrays_of(largest, largest)
    exact = squares(arrays)
    for bound in (exact - 1, exact, exact + 1):
        if bound <= 2**48:
            assert bool(fits([jnp.asarray(a) for a in arrays], bound)) == (exact <= bound)


@pytest.mark.parametrize("count", [1, 2, 70_000])
def test_sums_beyond_64_bits_do_not_wrap_round(count):
    array = jnp.full(count, LARGEST, jnp.int32)
    assert bool(fits([array], 2**48)) == (count == 1)
    assert not fits([array], LARGEST**2 - 1)


def test_each_part_alone_can_be_too_much():
    """Many lower halves, many upper halves, and many products of both."""
    for value, count in [(4095, 2**17), (4096, 2**12 + 1), (4096 + 4095, 2**11)]:
        array = jnp.full(count, value, jnp.int32)
        exact = value**2 * count
        assert bool(fits([array], min(exact, 2**48))) == (exact <= 2**48)
        assert not fits([array], min(exact - 1, 2**36))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.integers(0, 2**20))
def test_the_bound_holds_whatever_comes(seed, spread, bound):
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(spread * rng.normal(size=size), np.float32) for size in ((20,), (2, 2))]
    rounded = to_grid([jnp.asarray(a) for a in arrays], 3.0, bound)
    assert squares(rounded.integers) <= bound
    nearest = [np.round(a * np.float32(3.0)) for a in arrays]
    if squares(nearest) <= bound:
        for a, b in zip(rounded.integers, nearest, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38, 2.0**24])
def test_what_is_no_number_of_the_grid_counts_nothing(bad):
    rounded = to_grid([jnp.asarray([1.0, bad]), jnp.asarray(2.0)], 1.0, 2**48)
    assert not rounded.is_kept
    assert squares(rounded.integers) == 0


def test_the_bound_has_a_limit():
    with pytest.raises(ValueError, match=re.escape("bound_squared must be at most 2^48")):
        to_grid([jnp.zeros(1)], 1.0, 2**48 + 1)
