"""Clipped gemm: exact on small integers, blind to examples with the factor 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.arrays import ODD_SIZES, ZERO_SIZES, double, normals, small_integers
from support.structure import fresh_jit
from support.tolerance import assert_bits_equal, assert_within, eps

from bk_jax import ops
from bk_jax.ops.clipped_gemm import clipped_gemm_twin


def run(triples):
    """All triples of operands in one compiled program."""
    out = jax.jit(lambda triples: [ops.clipped_gemm(*operands) for operands in triples])(triples)
    return jax.tree.map(np.asarray, out)


def operands(make, dtype, sizes, batch=3, weights=2):
    t, m, k = sizes
    factor = np.asarray([0.5, 0.0, 2.0] * batch, np.float32)[:batch]
    lhs, rhs = make(0, (batch, weights, t, m), dtype), make(1, (batch, weights, t, k), dtype)
    return lhs, factor, rhs


def truth(lhs, factor, rhs):
    return np.einsum("bntm,b,bntk->nmk", double(lhs), double(factor), double(rhs))


def absolute(lhs, factor, rhs):
    """The same with absolute values: what rounding errors are relative to."""
    return truth(np.abs(double(lhs)), np.abs(factor), np.abs(double(rhs)))


def test_mental_arithmetic(implementation):
    lhs = np.float32([[[[1, 2]]], [[[10, 20]]]])
    rhs = np.float32([[[[3]]], [[[1]]]])
    (out,) = run([(lhs, np.float32([1, 0.5]), rhs)])
    assert out.tolist() == [[[3 + 5], [6 + 10]]]


def test_small_integers_are_exact(implementation, dtype):
    triples = [operands(small_integers, dtype, sizes) for sizes in ODD_SIZES + ZERO_SIZES]
    for triple, out in zip(triples, run(triples), strict=True):
        assert out.dtype == jnp.promote_types(dtype, jnp.float32)
        np.testing.assert_array_equal(out, truth(*triple), str(triple[0].shape))


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (0, 0, 0, 0)])
def test_no_examples_or_no_weights(implementation, shape):
    lhs, rhs = np.ones(shape, np.float32), np.ones((*shape[:3], 5), np.float32)
    (out,) = run([(lhs, np.ones(shape[0], np.float32), rhs)])
    np.testing.assert_array_equal(out, np.zeros((shape[1], shape[3], 5)))


@pytest.mark.native
def test_twin_and_native_agree(dtype):
    triples = [operands(normals, dtype, sizes) for sizes in [(1, 9, 5), (49, 7, 3), (3, 100, 200)]]
    twins = jax.jit(lambda triples: [clipped_gemm_twin(*operands)[0] for operands in triples])
    for triple, native, twin in zip(triples, run(triples), twins(triples), strict=True):
        roundings = 4 + triple[0].shape[0] * triple[0].shape[2]
        bound = roundings * eps(native.dtype) * absolute(*triple)
        assert_within(native, twin, 2 * bound, f"twin {triple[0].shape}")
        assert_within(native, truth(*triple), bound, f"truth {triple[0].shape}")


def test_a_large_product_applied_to_a_vector(implementation):
    lhs, factor, rhs = operands(normals, np.float32, (64, 300, 400), batch=6, weights=1)
    vector = np.random.default_rng(2).normal(size=400)
    (out,) = run([(lhs, factor, rhs)])
    expected = np.einsum("btm,b,bt->m", double(lhs[:, 0]), double(factor), rhs[:, 0] @ vector)
    scale = absolute(lhs, factor, rhs)[0] @ np.abs(vector)
    assert_within(double(out[0]) @ vector, expected, 64 * eps(np.float32) * scale, "out @ vector")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_example_with_the_factor_zero_is_not_read(implementation, bad):
    lhs, factor, rhs = operands(normals, np.float32, (5, 9, 7))
    clean = [lhs.copy(), factor, rhs.copy()]
    broken = [lhs.copy(), factor, rhs.copy()]
    for operand in (0, 2):
        clean[operand][1], broken[operand][1] = 0, bad  # factor[1] is 0
    expected, out = run([tuple(clean), tuple(broken)])
    assert_bits_equal(out, expected)


def test_all_factors_zero(implementation):
    lhs, _, rhs = operands(normals, np.float32, (5, 9, 7))
    (out,) = run([(lhs * np.nan, np.zeros(3, np.float32), rhs)])
    assert_bits_equal(out, np.zeros((2, 9, 7), np.float32))


def test_mixed_dtypes_take_the_wider_one(implementation):
    lhs, factor, rhs = operands(small_integers, jnp.bfloat16, (3, 4, 5))
    (out,) = run([(lhs.astype(np.float32), factor, rhs)])
    np.testing.assert_array_equal(out, truth(lhs, factor, rhs))


def test_two_runs_are_bit_identical(implementation):
    triple = operands(normals, np.float32, (100, 97, 193), batch=8)
    compiled = fresh_jit(ops.clipped_gemm)
    first = compiled(*triple)
    for _ in range(20):
        assert_bits_equal(compiled(*triple), first)


def test_the_sum_is_added_to_an_initial_value(implementation, dtype):
    lhs, factor, rhs = operands(small_integers, dtype, (3, 9, 17))
    initial = small_integers(2, (2, 9, 17), jnp.promote_types(dtype, jnp.float32))
    out = fresh_jit(ops.clipped_gemm)(lhs, factor, rhs, initial)
    np.testing.assert_array_equal(out, double(initial) + truth(lhs, factor, rhs))


@pytest.mark.native
def test_an_accumulation_over_microbatches_makes_no_copy():
    lhs, factor, rhs = operands(small_integers, np.float32, (3, 9, 17), batch=6)
    stacked = [x.reshape(2, 3, *x.shape[1:]) for x in (lhs, factor, rhs)]

    def accumulate(stacked):
        def add(total, part):
            return ops.clipped_gemm(*part, total), None

        return jax.lax.scan(add, jnp.zeros((2, 9, 17)), stacked)[0]

    compiled = fresh_jit(accumulate).lower(stacked).compile()
    np.testing.assert_array_equal(compiled(stacked), truth(lhs, factor, rhs))
    lines = compiled.as_text().splitlines()
    assert not [line for line in lines if " copy(" in line and "f32[2,9,17]" in line]


def test_initial_shape_error():
    lhs = np.zeros((2, 1, 3, 4), np.float32)
    with pytest.raises(ValueError, match=r"clipped_gemm expects initial \(1, 4, 4\), got \(4, 4\)"):
        ops.clipped_gemm(lhs, np.ones(2, np.float32), lhs, np.zeros((4, 4), np.float32))


def test_vmap(implementation):
    lhs, factor, rhs = operands(small_integers, np.float32, (3, 4, 5), batch=6)
    stacked = [x.reshape(2, 3, *x.shape[1:]) for x in (lhs, factor, rhs)]
    out = jax.jit(jax.vmap(ops.clipped_gemm))(*stacked)
    for i in range(2):
        np.testing.assert_array_equal(out[i], truth(*(x[i] for x in stacked)))


def test_eval_shape(implementation):
    out = jax.eval_shape(ops.clipped_gemm, *operands(normals, jnp.float16, (3, 4, 5)))
    assert (out.shape, out.dtype) == ((2, 4, 5), jnp.float32)


@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 1, 3, 4), (3, 1, 3, 4))])
def test_shape_errors(shapes):
    lhs, rhs = (np.zeros(shape, np.float32) for shape in shapes)
    with pytest.raises(
        ValueError, match=r"clipped_gemm expects lhs \[B, N, T, M\] and rhs"
    ) as info:
        ops.clipped_gemm(lhs, np.ones(2, np.float32), rhs)
    assert f"got {lhs.shape} and {rhs.shape}" in str(info.value)


def test_factor_shape_error():
    lhs = np.zeros((2, 1, 3, 4), np.float32)
    with pytest.raises(ValueError, match=r"clipped_gemm expects factor \[2\], got \(3,\)"):
        ops.clipped_gemm(lhs, np.ones(3, np.float32), lhs)
