"""Norms and sums of per-example gradients that exist in memory."""

import sys
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import double, normals, small_integers
from support.structure import fresh_jit
from support.tolerance import assert_bits_equal, assert_within, eps

from bk_jax import ops

# The last ones are above the size from which axes are reduced one at a time.
SHAPES = [(3,), (3, 5), (3, 2, 4), (1, 7), (3, 0), (3, 3, 1000), (2, 5, 7, 101)]


@pytest.fixture(autouse=True)
def _both(implementation):
    """Every test runs with the custom calls and with their twins."""


def squares(arrays):
    out = fresh_jit(lambda arrays: [ops.sum_of_squares(x) for x in arrays])(arrays)
    return jax.tree.map(np.asarray, out)


def flat(x):
    return double(x).reshape(len(x), -1) if x.size else np.zeros((len(x), 1))


def test_squares_of_small_integers_are_exact(dtype):
    arrays = [small_integers(0, shape, dtype) for shape in SHAPES]
    for array, norms in zip(arrays, squares(arrays), strict=True):
        true = np.square(flat(array)).sum(1)
        assert norms.estimate.dtype == norms.upper.dtype == jnp.promote_types(dtype, jnp.float32)
        np.testing.assert_array_equal(norms.estimate, true, str(array.shape))
        assert np.all(norms.upper >= true), array.shape
        assert np.all(norms.upper <= 1.001 * true), array.shape


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("shape", [(3, 5), (3, 3, 1000)])
def test_squares_of_one_bad_example(bad, shape):
    clean, broken = normals(0, shape, np.float32), normals(0, shape, np.float32)
    broken[1].flat[2] = bad
    expected, norms = squares([clean, broken])
    for got, want in zip(norms, expected, strict=True):
        assert_bits_equal(got[[0, 2]], want[[0, 2]])
        assert not np.isfinite(got[1])


def test_a_zero_gradient_has_the_bound_zero():
    (norms,) = squares([np.zeros((2, 3000), np.float32)])
    assert norms.estimate.tolist() == norms.upper.tolist() == [0.0, 0.0]


def test_squares_that_underflow_stay_visible():
    (norms,) = squares([np.asarray([[1e-30, 1e-30], [0, 0]], np.float32)])
    assert norms.upper[0] > 0
    assert norms.upper[1] == 0


def test_squares_of_many_arrays_add_up(dtype):
    arrays = [small_integers(i, (3, *shape[1:]), dtype) for i, shape in enumerate(SHAPES)]
    estimate, upper = fresh_jit(ops.sum_of_squares)(*arrays)
    true = sum(np.square(flat(array)).sum(1) for array in arrays)
    assert estimate.dtype == upper.dtype == jnp.promote_types(dtype, jnp.float32)
    np.testing.assert_array_equal(estimate, true)
    assert np.all(upper >= true)
    assert np.all(upper <= 1.001 * true)


def test_squares_eval_shape_and_vmap():
    x = small_integers(0, (2, 3, 5), np.float32)
    norms = jax.eval_shape(ops.sum_of_squares, jnp.bfloat16(x[0]))
    assert (norms.estimate.shape, norms.upper.dtype) == ((3,), jnp.float32)
    mapped = fresh_jit(jax.vmap(ops.sum_of_squares))(x)
    np.testing.assert_array_equal(mapped.estimate, np.square(x).sum(-1))


COMPILED = {}


@given(
    seed=st.integers(0, 2**32 - 1),
    decades=st.floats(0, 15),
    exponent=st.integers(-10, 3),
)
def test_the_bound_is_never_below_the_truth(implementation, dtype, seed, decades, exponent):
    rng = np.random.default_rng(seed)
    spread = 10.0 ** (-decades * rng.random((1, 60)))
    with np.errstate(under="ignore"):
        x = (10.0**exponent * spread * rng.normal(size=(1, 60))).astype(dtype)
    compiled = COMPILED.setdefault((implementation, dtype), fresh_jit(ops.sum_of_squares))
    upper = Fraction(float(np.asarray(compiled(x).upper)[0]))
    true = sum(Fraction(float(v)) ** 2 for v in x[0])
    assert upper >= true
    unit = eps(jnp.promote_types(dtype, jnp.float32))
    assert upper <= true * (1 + Fraction(200 * unit)) + Fraction(100 * 2.0**-126)


@pytest.fixture
def any_size(monkeypatch):
    """Small arrays too go to the custom call."""
    monkeypatch.setattr(sys.modules["bk_jax.ops.weighted_sum"], "NATIVE_ELEMENTS", 0)


def test_weighted_sum_of_small_integers_is_exact(any_size, dtype):
    factor = np.float32([0.5, 0, 2])
    arrays = [small_integers(0, (3, *shape[1:]), dtype) for shape in SHAPES]
    outs = fresh_jit(lambda arrays: [ops.weighted_sum(factor, x) for x in arrays])(arrays)
    for array, out in zip(arrays, outs, strict=True):
        assert out.dtype == jnp.promote_types(dtype, jnp.float32)
        expected = np.tensordot(double(factor), double(array), axes=1)
        np.testing.assert_array_equal(out, expected, str(array.shape))


def test_weighted_sums_of_many_arrays_are_those_of_each(dtype):
    factor = np.float32([0.5, 0, 2])
    arrays = [small_integers(i, (3, *shape[1:]), dtype) for i, shape in enumerate(SHAPES)]
    outs = fresh_jit(ops.weighted_sums)(factor, arrays)
    for array, out in zip(arrays, outs, strict=True):
        assert out.dtype == jnp.promote_types(dtype, jnp.float32)
        expected = np.tensordot(double(factor), double(array), axes=1)
        np.testing.assert_array_equal(out, expected, str(array.shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weighted_sum_ignores_what_has_the_factor_zero(any_size, bad):
    factor = np.float32([0.5, 0, 2])
    x = normals(0, (3, 5, 7), np.float32)
    broken = x.copy()
    broken[1] = bad
    compiled = fresh_jit(ops.weighted_sum)
    assert_bits_equal(compiled(factor, broken), compiled(factor, x))


def test_weighted_sum_of_no_examples(any_size):
    out = fresh_jit(ops.weighted_sum)(np.zeros(0, np.float32), np.zeros((0, 3), np.float32))
    assert_bits_equal(out, np.zeros(3, np.float32))


def test_weighted_sum_is_close_and_repeatable(any_size):
    factor, x = np.linspace(0, 1, 50).astype(np.float32), normals(0, (50, 9, 11), np.float32)
    compiled = fresh_jit(ops.weighted_sum)
    out = compiled(factor, x)
    expected = np.tensordot(double(factor), double(x), axes=1)
    scale = np.tensordot(double(factor), np.abs(double(x)), axes=1)
    assert_within(out, expected, 52 * eps(np.float32) * scale, "weighted_sum")
    assert_bits_equal(compiled(factor, x), out)
