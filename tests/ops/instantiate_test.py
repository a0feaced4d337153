"""Per-example gradients of dense layers: kept, or only measured."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import double, normals, small_integers
from support.tolerance import assert_bits_equal, eps

from bk_jax import ops

SIZES = [(1, 7, 9), (5, 3, 4), (0, 3, 2)]


def operands(make, dtype, sizes, batch=3, weights=2):
    t, m, k = sizes
    return make(0, (batch, weights, t, m), dtype), make(1, (batch, weights, t, k), dtype)


def truth(lhs, rhs):
    return np.einsum("bntm,bntk->bnmk", double(lhs), double(rhs))


def test_small_integers_are_exact(dtype):
    pairs = [operands(small_integers, dtype, sizes) for sizes in SIZES]
    both = jax.jit(lambda pairs: [(ops.per_sample_grad(*p), ops.direct_norm(*p)) for p in pairs])
    for pair, (grads, norms) in zip(pairs, both(pairs), strict=True):
        np.testing.assert_array_equal(grads, truth(*pair))
        np.testing.assert_array_equal(norms.estimate, np.square(truth(*pair)).sum((1, 2, 3)))
        assert grads.dtype == norms.upper.dtype == jnp.promote_types(dtype, jnp.float32)
        assert np.all(np.asarray(norms.upper) >= np.asarray(norms.estimate))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_bad_example_leaves_the_others_alone(bad):
    lhs, rhs = operands(normals, np.float32, (5, 3, 4))
    broken = lhs.copy()
    broken[1, 0, 2, 1] = bad
    compiled = jax.jit(ops.direct_norm)
    clean, norms = (jax.tree.map(np.asarray, compiled(x, rhs)) for x in (lhs, broken))
    for got, expected in zip(norms, clean, strict=True):
        assert_bits_equal(got[[0, 2]], expected[[0, 2]])
        assert not np.isfinite(got[1])


COMPILED = {}


@given(seed=st.integers(0, 2**32 - 1), cancel=st.booleans(), decades=st.integers(0, 4))
def test_the_bound_is_never_below_the_truth(dtype, seed, cancel, decades):
    rng = np.random.default_rng(seed)
    lhs, rhs = (rng.normal(size=(4, n)) * 10.0 ** -rng.uniform(0, decades, (4, 1)) for n in (3, 2))
    if cancel:
        lhs[2:], rhs[2:] = lhs[:2], -rhs[:2] * (1 + 1e-3 * rng.normal(size=(2, 2)))
    lhs, rhs = (x.astype(dtype)[None, None] for x in (lhs, rhs))
    compiled = COMPILED.setdefault(dtype, jax.jit(ops.direct_norm))
    upper = float(np.asarray(compiled(lhs, rhs).upper)[0])
    a, g = ([[Fraction(float(v)) for v in row] for row in x[0, 0]] for x in (lhs, rhs))
    true = sum(
        sum(x[i] * y[j] for x, y in zip(a, g, strict=True)) ** 2 for i in range(3) for j in range(2)
    )
    assert Fraction(upper) >= true
    spread = np.sum(np.linalg.norm(double(lhs), axis=-1) * np.linalg.norm(double(rhs), axis=-1))
    unit = eps(jnp.promote_types(dtype, jnp.float32))
    assert upper - float(true) <= 200 * unit * spread**2 + 1e-36
