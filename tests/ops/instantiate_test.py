"""Per-example gradients of dense layers: kept, or only measured."""

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
from bk_jax.ops.direct_norm import direct_norm_twin
from bk_jax.ops.per_sample_grad import per_sample_grad_twin

SIZES = [(1, 7, 9), (5, 3, 4), (0, 3, 2), (3, 17, 49), (330, 7, 17), (2, 0, 3)]


def operands(make, dtype, sizes, batch=3, weights=2):
    t, m, k = sizes
    return make(0, (batch, weights, t, m), dtype), make(1, (batch, weights, t, k), dtype)


def truth(lhs, rhs):
    return np.einsum("bntm,bntk->bnmk", double(lhs), double(rhs))


def test_small_integers_are_exact(implementation, dtype):
    pairs = [operands(small_integers, dtype, sizes) for sizes in SIZES]
    both = jax.jit(lambda pairs: [(ops.per_sample_grad(*p), ops.direct_norm(*p)) for p in pairs])
    for pair, ((grads, stored), direct) in zip(pairs, both(pairs), strict=True):
        np.testing.assert_array_equal(grads, truth(*pair))
        for norms in (stored, direct):
            np.testing.assert_array_equal(norms.estimate, np.square(truth(*pair)).sum((1, 2, 3)))
            assert grads.dtype == norms.upper.dtype == jnp.promote_types(dtype, jnp.float32)
            assert np.all(np.asarray(norms.upper) >= np.asarray(norms.estimate))


@pytest.mark.native
def test_twins_and_native_agree(dtype):
    for sizes in [(49, 7, 3), (3, 100, 200)]:
        pair = operands(normals, dtype, sizes)
        grads, stored = jax.jit(ops.per_sample_grad)(*pair)
        twin_grads, twin_estimate, _ = jax.jit(per_sample_grad_twin)(*pair)
        direct, twin = jax.jit(ops.direct_norm)(*pair), jax.jit(direct_norm_twin)(*pair)
        scale = np.einsum("bntm,bntk->bnmk", *(np.abs(double(x)) for x in pair))
        unit = eps(grads.dtype)
        assert_within(grads, twin_grads, 2 * (sizes[0] + 2) * unit * scale, "gradients")
        squares = np.square(scale).sum((1, 2, 3))
        for got, want in ((stored.estimate, twin_estimate), (direct.estimate, twin.estimate)):
            assert_within(got, want, 8 * sum(sizes) * unit * squares, "norms")


def test_two_runs_are_bit_identical(implementation):
    pair = operands(normals, np.float32, (20, 97, 193), batch=4)
    for op in (ops.per_sample_grad, ops.direct_norm):
        compiled = fresh_jit(op)
        first = jax.tree.leaves(compiled(*pair))
        for _ in range(5):
            for got, want in zip(jax.tree.leaves(compiled(*pair)), first, strict=True):
                assert_bits_equal(got, want)


@pytest.mark.parametrize("op", [ops.per_sample_grad, ops.direct_norm])
def test_shape_errors(op):
    lhs, rhs = np.zeros((2, 1, 3, 4), np.float32), np.zeros((2, 1, 4, 4), np.float32)
    with pytest.raises(ValueError, match=r"expects \[B, N, T, M\] and \[B, N, T, K\]") as info:
        op(lhs, rhs)
    assert f"{op.__name__} expects" in str(info.value)
    assert f"got {lhs.shape} and {rhs.shape}" in str(info.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_bad_example_leaves_the_others_alone(implementation, bad):
    lhs, rhs = operands(normals, np.float32, (5, 3, 4))
    broken = lhs.copy()
    broken[1, 0, 2, 1] = bad
    compiled = fresh_jit(ops.direct_norm)
    clean, norms = (jax.tree.map(np.asarray, compiled(x, rhs)) for x in (lhs, broken))
    for got, expected in zip(norms, clean, strict=True):
        assert_bits_equal(got[[0, 2]], expected[[0, 2]])
        assert not np.isfinite(got[1])


COMPILED = {}


@given(seed=st.integers(0, 2**32 - 1), cancel=st.booleans(), decades=st.integers(0, 4))
def test_the_bound_is_never_below_the_truth(implementation, dtype, seed, cancel, decades):
    rng = np.random.default_rng(seed)
    lhs, rhs = (rng.normal(size=(4, n)) * 10.0 ** -rng.uniform(0, decades, (4, 1)) for n in (3, 2))
    if cancel:
        lhs[2:], rhs[2:] = lhs[:2], -rhs[:2] * (1 + 1e-3 * rng.normal(size=(2, 2)))
    lhs, rhs = (x.astype(dtype)[None, None] for x in (lhs, rhs))
    compiled = COMPILED.setdefault((implementation, dtype), fresh_jit(ops.direct_norm))
    upper = float(np.asarray(compiled(lhs, rhs).upper)[0])
    a, g = ([[Fraction(float(v)) for v in row] for row in x[0, 0]] for x in (lhs, rhs))
    true = sum(
        sum(x[i] * y[j] for x, y in zip(a, g, strict=True)) ** 2 for i in range(3) for j in range(2)
    )
    assert Fraction(upper) >= true
    spread = np.sum(np.linalg.norm(double(lhs), axis=-1) * np.linalg.norm(double(rhs), axis=-1))
    unit = eps(jnp.promote_types(dtype, jnp.float32))
    assert upper - float(true) <= 200 * unit * spread**2 + 1e-36
