"""Ghost norms: exact on small integers, never below the truth, the same in C++ and in JAX."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import ODD_SIZES, ZERO_SIZES, double, normals, small_integers
from support.structure import fresh_jit
from support.tolerance import assert_bits_equal, assert_within, eps

from bk_jax import ops
from bk_jax.ops.ghost_norm import ghost_norm_twin

TWIN_SIZES = [(2, 3, 17), (49, 16, 31), (0, 3, 2)]


def run(pairs):
    """All pairs of operands in one compiled program."""
    out = jax.jit(lambda pairs: [ops.ghost_norm(a, g) for a, g in pairs])(pairs)
    return jax.tree.map(np.asarray, out)


def operands(make, dtype, sizes, batch=3, weights=2):
    t, d, p = sizes
    return make(0, (batch, weights, t, d), dtype), make(1, (batch, weights, t, p), dtype)


def truth(a, g):
    """`sum_n ||a[i, n]^T g[i, n]||^2`, by its definition."""
    gradients = np.einsum("bntd,bntp->bndp", double(a), double(g))
    return np.square(gradients).sum((1, 2, 3))


def spread(a, g):
    """`sum_n (sum_t |a_t| |g_t|)^2`: what rounding errors are relative to."""
    lengths = np.linalg.norm(double(a), axis=-1) * np.linalg.norm(double(g), axis=-1)
    return np.square(lengths.sum(-1)).sum(-1)


def roundings(a, g):
    """At most so many, generously; in double the bound counts those of a whole tile, 48 x 48."""
    return 2 * sum(a.shape + g.shape) + (5000 if a.dtype == np.float64 else 0)


def test_mental_arithmetic(implementation):
    a = np.float32([[[[1, 2], [3, 4]]]])
    g = np.float32([[[[1], [-1]]]])  # the gradient is (1, 2) - (3, 4) = (-2, -2)
    (norms,) = run([(a, g)])
    assert norms.estimate.tolist() == [8.0]
    assert 8.0 <= norms.upper[0] < 8.001


def test_small_integers_are_exact(implementation, dtype):
    # The twin has no tiles; three sizes will do.
    sizes_of_all = ODD_SIZES + ZERO_SIZES if implementation == "native" else TWIN_SIZES
    pairs = [operands(small_integers, dtype, sizes) for sizes in sizes_of_all]
    for (a, g), norms in zip(pairs, run(pairs), strict=True):
        assert norms.estimate.dtype == norms.upper.dtype == jnp.promote_types(dtype, jnp.float32)
        np.testing.assert_array_equal(norms.estimate, truth(a, g), str(a.shape))
        assert np.all(norms.upper >= norms.estimate), a.shape
        assert np.all(norms.upper <= 1.01 * truth(a, g) + eps(norms.upper.dtype) * 1e4), a.shape


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (0, 0, 0, 0)])
def test_no_examples_or_no_weights(implementation, shape):
    (norms,) = run([(np.ones(shape, np.float32), np.ones((*shape[:3], 5), np.float32))])
    assert norms.estimate.tolist() == norms.upper.tolist() == [0.0] * shape[0]


def test_a_zero_gradient_has_the_bound_zero(implementation, dtype):
    a, _ = operands(normals, dtype, (3, 4, 5))
    (norms,) = run([(a, np.zeros((3, 2, 3, 5), dtype))])
    assert norms.estimate.tolist() == norms.upper.tolist() == [0.0] * 3


@pytest.mark.native
def test_twin_and_native_agree(dtype):
    pairs = [operands(normals, dtype, sizes) for sizes in [(1, 9, 5), (49, 7, 3)]]
    twins = jax.jit(lambda pairs: [ghost_norm_twin(a, g) for a, g in pairs])(pairs)
    for (a, g), native, twin in zip(pairs, run(pairs), twins, strict=True):
        bound = roundings(a, g) * eps(native.estimate.dtype) * spread(a, g)
        assert_within(native.estimate, twin.estimate, bound, f"estimate {a.shape}")
        assert_within(native.estimate, truth(a, g), bound, f"truth {a.shape}")
        assert np.all(native.upper >= native.estimate), a.shape
        assert_within(native.upper, truth(a, g), 2 * bound + 1e-30, f"upper {a.shape}")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_example_leaves_the_others_alone(implementation, bad):
    a, g = operands(normals, np.float32, (17, 9, 5))
    clean, broken = a.copy(), a.copy()
    clean[1], broken[1, 1, 3, 2] = 0, bad
    without, with_bad = run([(clean, g), (broken, g)])
    others = [0, 2]
    assert_bits_equal(with_bad.estimate[others], without.estimate[others])
    assert_bits_equal(with_bad.upper[others], without.upper[others])
    assert not np.isfinite(with_bad.estimate[1])
    assert not np.isfinite(with_bad.upper[1])


def test_overflow_is_not_finite(implementation):
    a = np.full((1, 1, 2, 2), 1e25, np.float32)
    (norms,) = run([(a, a)])
    assert not np.isfinite(norms.estimate[0])
    assert not np.isfinite(norms.upper[0])


def test_mixed_dtypes_take_the_wider_one(implementation):
    a, g = operands(small_integers, jnp.bfloat16, (3, 4, 5))
    (norms,) = run([(a, g.astype(np.float32))])
    np.testing.assert_array_equal(norms.estimate, truth(a, g))


def test_two_runs_are_bit_identical(implementation):
    a, g = operands(normals, np.float32, (100, 33, 65), batch=8)
    compiled = fresh_jit(ops.ghost_norm)
    first = compiled(a, g)
    for _ in range(20):
        again = compiled(a, g)
        assert_bits_equal(again.estimate, first.estimate)
        assert_bits_equal(again.upper, first.upper)


@pytest.mark.native
def test_without_jit():
    a, g = operands(small_integers, np.float32, (3, 4, 5))
    np.testing.assert_array_equal(
        ops.ghost_norm(jnp.asarray(a), jnp.asarray(g)).estimate, truth(a, g)
    )


def test_vmap(implementation):
    a, g = operands(small_integers, np.float32, (3, 4, 5), batch=6)
    split = jax.jit(jax.vmap(ops.ghost_norm))(a.reshape(2, 3, 2, 3, 4), g.reshape(2, 3, 2, 3, 5))
    np.testing.assert_array_equal(split.estimate, truth(a, g).reshape(2, 3))


def test_eval_shape(implementation):
    a, g = operands(normals, jnp.bfloat16, (3, 4, 5))
    norms = jax.eval_shape(ops.ghost_norm, a, g)
    assert (norms.estimate.shape, norms.estimate.dtype) == ((3,), jnp.float32)
    assert (norms.upper.shape, norms.upper.dtype) == ((3,), jnp.float32)


@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 1, 3, 4), (2, 1, 4, 4))])
def test_shape_errors(shapes):
    a, g = (np.zeros(shape, np.float32) for shape in shapes)
    with pytest.raises(
        ValueError, match=r"ghost_norm expects activations \[B, N, T, d\] and"
    ) as info:
        ops.ghost_norm(a, g)
    assert f"got {a.shape} and {g.shape}" in str(info.value)


# --- the bound ---

KINDS = ["random", "cancelling", "sparse", "wide range", "constant"]


def bound_operands(kind, seed, exponents, dtype):
    """`a` [1, 1, 6, 4] and `g` [1, 1, 6, 3] of different character."""
    rng = np.random.default_rng(seed)
    a, g = rng.normal(size=(6, 4)), rng.normal(size=(6, 3))
    if kind == "cancelling":  # the second half takes back the first, up to one part in 2^12
        a[3:], g[3:] = a[:3], -g[:3] * (1 + 2.0**-12 * rng.normal(size=(3, 3)))
    elif kind == "sparse":
        a, g = a * (rng.random(a.shape) < 0.3), g * (rng.random(g.shape) < 0.3)
    elif kind == "wide range":
        a, g = (x * 2.0 ** rng.integers(-8, 4, x.shape) for x in (a, g))
    elif kind == "constant":
        a, g = np.full_like(a, a[0, 0]), np.full_like(g, g[0, 0])
    scale_a, scale_g = (2.0**e for e in exponents)
    return (a * scale_a).astype(dtype)[None, None], (g * scale_g).astype(dtype)[None, None]


def exact(a, g):
    """The squared norm as a fraction."""
    a, g = ([[Fraction(float(v)) for v in row] for row in x[0, 0]] for x in (a, g))
    columns = [(i, j) for i in range(len(a[0])) for j in range(len(g[0]))]
    entries = (sum(x[i] * y[j] for x, y in zip(a, g, strict=True)) for i, j in columns)
    return sum(entry * entry for entry in entries)


COMPILED = {}


def upper_bound(implementation, a, g):
    """Compiled once for each implementation and dtype."""
    key = (implementation, a.dtype)
    if key not in COMPILED:
        COMPILED[key] = fresh_jit(ops.ghost_norm)
    return float(np.asarray(COMPILED[key](a, g).upper)[0])


@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32 - 1),
    exponents=st.tuples(st.integers(-8, 7), st.integers(-8, 7)),
)
def test_the_bound_is_never_below_the_truth(implementation, dtype, kind, seed, exponents):
    a, g = bound_operands(kind, seed, exponents, dtype)
    upper, true = upper_bound(implementation, a, g), exact(a, g)
    assert Fraction(upper) >= true
    unit = eps(jnp.promote_types(dtype, jnp.float32))
    assert Fraction(upper) - true <= roundings(a, g) * unit * spread(a, g)[0] + 1e-37


@pytest.mark.native
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32 - 1),
    exponents=st.tuples(st.integers(-140, 60), st.integers(-140, 60)),
)
def test_the_bound_survives_underflow(kind, seed, exponents):
    a, g = bound_operands(kind, seed, exponents, np.float32)
    upper = upper_bound("native", a, g)
    assert np.isinf(upper) or Fraction(upper) >= exact(a, g)
