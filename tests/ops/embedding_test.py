"""Lookups: norms and sums of gradients that belong to rows of a table."""

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
from bk_jax.ops.clipped_scatter import clipped_scatter_twin
from bk_jax.ops.embedding_norm import embedding_norm_twin
from bk_jax.ops.tied_cross import tied_cross_twin

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


def test_norms_of_small_integers_are_exact(implementation, dtype):
    ids, g = operands(dtype)
    norms = fresh_jit(ops.embedding_norm)(ids, g)
    true = np.square(table_gradient(ids, g)).sum((1, 2))
    np.testing.assert_array_equal(norms.estimate, true)
    assert np.all(np.asarray(norms.upper) >= true)
    assert norms.upper.dtype == jnp.promote_types(dtype, jnp.float32)


def test_scatter_of_small_integers_is_exact(implementation, dtype):
    ids, g = operands(dtype)
    factor = np.float32([0.5, 0, 2])
    out = jax.jit(lambda *xs: ops.clipped_scatter(*xs, ROWS))(ids, factor, g)
    np.testing.assert_array_equal(out, np.einsum("b,brp->rp", factor, table_gradient(ids, g)))
    assert out.dtype == jnp.promote_types(dtype, jnp.float32)


def test_cross_terms_of_small_integers_are_exact(implementation, dtype):
    ids, g = operands(dtype)
    left, right = (small_integers(i, (BATCH, 4, n), dtype) for i, n in ((5, ROWS), (6, WIDTH)))
    cross = fresh_jit(ops.tied_cross)(left, right, ids, g)
    dense = np.einsum("btr,btp->brp", double(left), double(right))
    true = np.sum(dense * table_gradient(ids, g), axis=(1, 2))
    np.testing.assert_array_equal(cross.estimate, true)
    assert np.all(np.asarray(cross.upper) >= true)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_bad_example(implementation, bad):
    ids, g = operands(np.float32)
    ids[1, 0] = 2  # is read
    broken = g.copy()
    broken[1, 0, 1] = bad
    norm = fresh_jit(ops.embedding_norm)
    clean, norms = (jax.tree.map(np.asarray, norm(ids, x)) for x in (g, broken))
    for got, expected in zip(norms, clean, strict=True):
        assert_bits_equal(got[[0, 2]], expected[[0, 2]])
        assert not np.isfinite(got[1])
    scatter = jax.jit(lambda *xs: ops.clipped_scatter(*xs, ROWS))
    factor = np.float32([0.5, 0, 2])
    assert_bits_equal(scatter(ids, factor, broken), scatter(ids, factor, g))


def test_tokens_that_were_not_read_do_not_count(implementation):
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
def test_the_bounds_are_never_below_the_truth(implementation, seed, cancel):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, ROWS, (BATCH, TOKENS)).astype(np.int32)
    g = rng.normal(size=(BATCH, TOKENS, WIDTH)) * 10.0 ** -rng.uniform(0, 4, (BATCH, TOKENS, 1))
    if cancel:
        ids[:, 3:6], g[:, 3:6] = ids[:, :3], -g[:, :3] * 1.001
    g = g.astype(np.float32)
    left, right = (rng.normal(size=(BATCH, 4, n)).astype(np.float32) for n in (ROWS, WIDTH))
    if implementation not in COMPILED:
        COMPILED[implementation] = fresh_jit(ops.embedding_norm), fresh_jit(ops.tied_cross)
    norm, cross_term = COMPILED[implementation]
    table = table_gradient(ids, g)  # float64: exact to 1e-16 of the terms, bounds leave 1e-7
    true = np.square(table).sum((1, 2))
    upper = np.asarray(norm(ids, g).upper, np.float64)
    assert np.all(upper >= true)
    lengths = np.linalg.norm(double(g), axis=-1).sum(-1)
    assert np.all(upper - true <= 200 * eps(np.float32) * np.square(lengths) + 1e-36)
    cross = np.einsum("btr,btp,brp->b", double(left), double(right), table)
    assert np.all(np.asarray(cross_term(left, right, ids, g).upper, np.float64) >= cross)


@pytest.mark.native
def test_twins_and_native_calls_agree(dtype):
    """Many tokens of few rows, some outside the table; more columns than one task takes."""
    rows, batch, tokens, p = 37, 3, 150, 1100
    ids = np.random.default_rng(0).integers(-3, rows + 3, (batch, tokens)).astype(np.int32)
    g, initial = normals(1, (batch, tokens, p), dtype), normals(2, (rows, p), np.float32)
    left, right = normals(3, (batch, 50, rows), dtype), normals(4, (batch, 50, p), dtype)
    factor = np.float32([0.5, 0, 2])
    roundings = eps(jnp.promote_types(dtype, jnp.float32)) * (batch * tokens + p)
    native, twin = (np.asarray(f(ids, g).estimate) for f in (
        fresh_jit(ops.embedding_norm), fresh_jit(embedding_norm_twin)))  # fmt: skip
    assert_within(native, twin, roundings * np.square(double(g)).sum((1, 2)) * tokens, "norm")
    wide = initial.astype(jnp.promote_types(dtype, jnp.float32))
    native = fresh_jit(lambda *xs: ops.clipped_scatter(*xs[:3], rows, xs[3]))(ids, factor, g, wide)
    (twin,) = fresh_jit(clipped_scatter_twin)(ids, factor.astype(wide.dtype), g, wide)
    scale = np.abs(double(g)).sum((0, 1)) * 2 + np.abs(initial)
    assert_within(native, twin, roundings * scale, "scatter")
    native, twin = (np.asarray(f(left, right, ids, g).estimate) for f in (
        fresh_jit(ops.tied_cross), fresh_jit(tied_cross_twin)))  # fmt: skip
    lengths = [np.linalg.norm(double(x), axis=-1).sum(-1) for x in (left, right, g)]
    assert_within(native, twin, roundings * np.prod(lengths, 0), "cross")


def test_scatter_adds_to_an_initial_value(implementation):
    ids, g = operands(np.float32)
    factor, initial = np.float32([0.5, 0, 2]), small_integers(9, (ROWS, WIDTH), np.float32)
    scatter = fresh_jit(lambda *xs: ops.clipped_scatter(*xs[:3], ROWS, xs[3]))
    out = scatter(ids, factor, g, initial)
    expected = initial + np.einsum("b,brp->rp", factor, table_gradient(ids, g))
    np.testing.assert_array_equal(out, expected)


def test_ids_outside_the_table_are_not_read(implementation):
    ids = np.int32([[-7, ROWS, 1, np.iinfo(np.int32).max]])
    g = np.float32([[[np.nan, 1], [np.nan, 1], [2, 3], [np.nan, 1]]])
    out = fresh_jit(lambda *xs: ops.clipped_scatter(*xs, ROWS))(ids, np.ones(1, np.float32), g)
    np.testing.assert_array_equal(out[1], [2, 3])
    np.testing.assert_array_equal(np.delete(out, 1, 0), 0)
    left, right = np.ones((1, 2, ROWS), np.float32), np.ones((1, 2, 2), np.float32)
    cross = fresh_jit(ops.tied_cross)(left, right, ids, g)
    assert np.asarray(cross.estimate).tolist() == [2 * (2 + 3)]


def test_wide_ids(implementation, x64):
    """2**32 + 1 is not row 1."""
    ids = np.int64([[2**32 + 1, 1, -(2**32) + 1]])
    g = np.float64([[[1.0], [2.0], [4.0]]])
    assert np.asarray(fresh_jit(ops.embedding_norm)(ids, g).estimate).tolist() == [4.0]


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 2), (2, 3, 0)])
def test_empty_dimensions(implementation, shape):
    g, ids = np.ones(shape, np.float32), np.zeros(shape[:2], np.int32)
    norms = fresh_jit(ops.embedding_norm)(ids, g)
    np.testing.assert_array_equal(norms.upper, np.zeros(shape[0]))
    out = fresh_jit(lambda *xs: ops.clipped_scatter(*xs, ROWS))(ids, np.ones(shape[0]), g)
    np.testing.assert_array_equal(out, np.zeros((ROWS, shape[2])))
    left, right = np.ones((shape[0], 4, ROWS), np.float32), np.ones((shape[0], 4, shape[2]))
    cross = fresh_jit(ops.tied_cross)(left, right.astype(np.float32), ids, g)
    np.testing.assert_array_equal(cross.estimate, np.zeros(shape[0]))


def test_vmap(implementation):
    ids, g = operands(np.float32)
    out = fresh_jit(
        jax.vmap(lambda i, x: ops.clipped_scatter(i[None], jnp.ones(1), x[None], ROWS))
    )(ids, g)
    np.testing.assert_array_equal(out, table_gradient(ids, g))


def test_shape_errors():
    ids, g = np.zeros((2, 3), np.int32), np.zeros((2, 3, 4), np.float32)
    with pytest.raises(ValueError, match=r"embedding_norm expects integer ids \[B, T\].*got int32"):
        ops.embedding_norm(ids[:1], g)
    with pytest.raises(ValueError, match=r"expects integer ids.*got float32\[2, 3\]"):
        ops.embedding_norm(ids.astype(np.float32), g)
    with pytest.raises(ValueError, match=r"clipped_scatter expects factor \[2\], got \(3,\)"):
        ops.clipped_scatter(ids, np.ones(3), g, 5)
    with pytest.raises(ValueError, match=r"clipped_scatter expects initial \(5, 4\), got \(4, 5\)"):
        ops.clipped_scatter(ids, np.ones(2), g, 5, np.ones((4, 5), np.float32))
    with pytest.raises(ValueError, match=r"tied_cross expects left \[B, T, rows\], right"):
        ops.tied_cross(g, g[:, :2], ids, g)
