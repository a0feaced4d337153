"""Lookups: norms and sums of gradients that belong to rows of a table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import double, small_integers
from support.tolerance import assert_bits_equal, eps

from bk_jax import ops

ROWS, BATCH, TOKENS, WIDTH = 5, 3, 7, 2


def table_gradient(ids, g):
    """`[B, rows, p]`: the gradient of the whole table for every example."""
    out = np.zeros((len(ids), ROWS, g.shape[-1]))
    for i, row in enumerate(ids):
        for t, token in enumerate(row):
            if token >= 0:
                out[i, token] += double(g[i, t])
    return out


def operands(dtype, seed=0):
    """Few rows, so that tokens repeat; -1 is a token that was not read."""
    ids = np.random.default_rng(seed).integers(-1, ROWS, (BATCH, TOKENS)).astype(np.int32)
    return ids, small_integers(seed + 1, (BATCH, TOKENS, WIDTH), dtype)


def test_norms_of_small_integers_are_exact(dtype):
    ids, g = operands(dtype)
    norms = jax.jit(ops.embedding_norm)(ids, g)
    true = np.square(table_gradient(ids, g)).sum((1, 2))
    np.testing.assert_array_equal(norms.estimate, true)
    assert np.all(np.asarray(norms.upper) >= true)
    assert norms.upper.dtype == jnp.promote_types(dtype, jnp.float32)


def test_scatter_of_small_integers_is_exact(dtype):
    ids, g = operands(dtype)
    factor = np.float32([0.5, 0, 2])
    out = jax.jit(lambda *xs: ops.clipped_scatter(*xs, ROWS))(ids, factor, g)
    np.testing.assert_array_equal(out, np.einsum("b,brp->rp", factor, table_gradient(ids, g)))
    assert out.dtype == jnp.promote_types(dtype, jnp.float32)


def test_cross_terms_of_small_integers_are_exact(dtype):
    ids, g = operands(dtype)
    left, right = (small_integers(i, (BATCH, 4, n), dtype) for i, n in ((5, ROWS), (6, WIDTH)))
    cross = jax.jit(ops.tied_cross)(left, right, ids, g)
    dense = np.einsum("btr,btp->brp", double(left), double(right))
    true = np.sum(dense * table_gradient(ids, g), axis=(1, 2))
    np.testing.assert_array_equal(cross.estimate, true)
    assert np.all(np.asarray(cross.upper) >= true)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_bad_example(bad):
    ids, g = operands(np.float32)
    ids[1, 0] = 2  # is read
    broken = g.copy()
    broken[1, 0, 1] = bad
    norm = jax.jit(ops.embedding_norm)
    clean, norms = (jax.tree.map(np.asarray, norm(ids, x)) for x in (g, broken))
    for got, expected in zip(norms, clean, strict=True):
        assert_bits_equal(got[[0, 2]], expected[[0, 2]])
        assert not np.isfinite(got[1])
    scatter = jax.jit(lambda *xs: ops.clipped_scatter(*xs, ROWS))
    factor = np.float32([0.5, 0, 2])
    assert_bits_equal(scatter(ids, factor, broken), scatter(ids, factor, g))


def test_tokens_that_were_not_read_do_not_count():
    ids, g = operands(np.float32)
    broken = np.where((ids < 0)[..., None], np.float32(np.nan), g)
    compiled = jax.jit(lambda ids, g: (ops.embedding_norm(ids, g), ops.clipped_scatter(
        ids, jnp.ones(BATCH), g, ROWS)))  # fmt: skip
    for got, expected in zip(
        jax.tree.leaves(compiled(ids, broken)), jax.tree.leaves(compiled(ids, g)), strict=True
    ):
        assert_bits_equal(got, expected)


COMPILED = {}


@given(seed=st.integers(0, 2**32 - 1), cancel=st.booleans())
def test_the_bounds_are_never_below_the_truth(seed, cancel):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, ROWS, (BATCH, TOKENS)).astype(np.int32)
    g = rng.normal(size=(BATCH, TOKENS, WIDTH)) * 10.0 ** -rng.uniform(0, 4, (BATCH, TOKENS, 1))
    if cancel:
        ids[:, 3:6], g[:, 3:6] = ids[:, :3], -g[:, :3] * 1.001
    g = g.astype(np.float32)
    left, right = (rng.normal(size=(BATCH, 4, n)).astype(np.float32) for n in (ROWS, WIDTH))
    if not COMPILED:
        COMPILED["norm"], COMPILED["cross"] = jax.jit(ops.embedding_norm), jax.jit(ops.tied_cross)
    table = table_gradient(ids, g)  # float64: exact to 1e-16 of the terms, bounds leave 1e-7
    true = np.square(table).sum((1, 2))
    upper = np.asarray(COMPILED["norm"](ids, g).upper, np.float64)
    assert np.all(upper >= true)
    lengths = np.linalg.norm(double(g), axis=-1).sum(-1)
    assert np.all(upper - true <= 200 * eps(np.float32) * np.square(lengths) + 1e-36)
    cross = np.einsum("btr,btp,brp->b", double(left), double(right), table)
    assert np.all(np.asarray(COMPILED["cross"](left, right, ids, g).upper, np.float64) >= cross)
