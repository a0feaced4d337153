"""Clip factors: the table of the clipping functions, and `factor * norm <= R` without exception."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import double
from support.structure import fresh_jit
from support.tolerance import assert_bits_equal, assert_within, eps

from bk_jax import ops
from bk_jax.ops.clip_factor import clip_factor_twin

NAMES = ["abadi", "automatic", "normalize", "indicator"]
TINY = float(np.finfo(np.float32).tiny)


def run(sq_norms, clip_norm, is_padding=None, *, clipping="abadi", dtype=np.float32):
    sq_norms = np.asarray(sq_norms, dtype)
    padding = np.zeros(sq_norms.shape[1], bool) if is_padding is None else np.asarray(is_padding)
    compiled = fresh_jit(lambda *operands: ops.clip_factor(*operands, clipping=clipping))
    factor, norm = compiled(sq_norms, np.asarray(clip_norm, dtype), padding)
    return np.asarray(factor), np.asarray(norm)


def check_table(rows):
    """`{clipping: [(norm, R, ideal factor)]}`: the factor is the ideal one up to 8 roundings."""
    for clipping, cases in rows.items():
        norms, clip_norms, ideals = (list(column) for column in zip(*cases, strict=True))
        compiled = fresh_jit(
            lambda norms, bounds, clipping=clipping: [
                ops.clip_factor(
                    (n * n).reshape(1, 1), bound, jnp.zeros(1, bool), clipping=clipping
                )[0]
                for n, bound in zip(norms, bounds, strict=True)
            ]
        )
        factors = compiled(np.float32(norms), np.float32(clip_norms))
        for factor, norm, clip_norm, ideal in zip(factors, norms, clip_norms, ideals, strict=True):
            what = f"{clipping}: norm {norm}, R {clip_norm}"
            assert_within(factor, [ideal], 8 * eps(np.float32) * ideal, what)


def test_table_of_clipping_functions(implementation):
    check_table(
        {
            "abadi": [(2, 1, 0.5), (0.5, 1, 1), (4, 8, 1), (8, 4, 0.5)],
            "automatic": [(2, 1, 1 / 2.01), (0.5, 1, 1 / 0.51), (1e-3, 1, 1 / 0.011)],
            "normalize": [(2, 1, 0.5), (0.5, 1, 2), (4, 8, 2)],
            "indicator": [(2, 1, 0), (0.5, 1, 1), (4, 8, 1), (8, 4, 0)],
        }
    )


def test_table_at_norm_zero(implementation):
    check_table(
        {
            "abadi": [(0, 3, 1)],
            "automatic": [(0, 3, 300)],
            "normalize": [(0, 3, 0)],
            "indicator": [(0, 3, 1)],
        }
    )


@pytest.mark.parametrize("clipping", NAMES)
def test_clip_norm_zero_gives_zero(implementation, clipping):
    factor, _ = run([[0, 1, 4, TINY]], 0.0, clipping=clipping)
    assert factor.tolist() == [0.0] * 4


def test_clip_norm_infinite_leaves_gradients_alone(implementation):
    for clipping in ["abadi", "indicator"]:
        factor, _ = run([[0, 1, 1e30, np.inf, np.nan]], np.inf, clipping=clipping)
        assert factor.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("clipping", NAMES)
def test_padding_and_non_finite_norms_give_zero(implementation, clipping):
    squares = [[0.1, 0.1, 0.1, np.nan, np.inf], [0.1, 0.1, np.nan, 0.1, 0.1]]
    factor, norm = run(squares, 1.0, [False, True, False, False, False], clipping=clipping)
    assert factor[0] > 0
    assert factor[1:].tolist() == [0.0] * 4
    assert not np.any(np.isfinite(norm[2:]))


def test_norms_combine_all_parts(implementation):
    _, norm = run([[9, 0], [16, 25], [0, 144]], 1.0)
    assert np.all(norm >= [5, 13])
    assert_within(norm, [5, 13], 16 * eps(np.float32) * 13, "norm")


def test_no_parts_means_norm_zero(implementation):
    factor, norm = run(np.zeros((0, 2)), 1.0)
    assert norm.tolist() == [0.0, 0.0]
    assert factor.tolist() == [1.0, 1.0]


def test_no_examples(implementation):
    factor, norm = run(np.zeros((3, 0)), 1.0)
    assert factor.shape == norm.shape == (0,)


@pytest.mark.native
@pytest.mark.parametrize("clipping", NAMES)
def test_twin_and_native_agree(real, clipping):
    squares = (10.0 ** np.random.default_rng(0).uniform(-12, 12, (5, 40))).astype(real)
    padding = np.arange(40) % 7 == 0
    factor, norm = run(squares, 3.0, padding, clipping=clipping, dtype=real)
    twin = jax.jit(lambda *xs: clip_factor_twin(*xs, clipping=clipping))
    twin_factor, twin_norm = twin(squares, np.asarray(3.0, real), padding)
    assert factor.dtype == norm.dtype == twin_factor.dtype == real
    assert_within(norm, twin_norm, 32 * eps(real) * double(norm), "norm")
    assert_within(factor, twin_factor, 64 * eps(real) * double(factor), "factor")


def test_two_runs_are_bit_identical(implementation):
    squares = np.random.default_rng(0).random((7, 100)).astype(np.float32)
    first = run(squares, 0.3)
    for got, expected in zip(run(squares, 0.3), first, strict=True):
        assert_bits_equal(got, expected)


def test_vmap_and_a_traced_clip_norm(implementation):
    squares = np.float32([[[4.0, 1.0]], [[16.0, 1.0]]])
    mapped = jax.jit(jax.vmap(ops.clip_factor))
    factor, norm = mapped(squares, np.float32([1.0, 2.0]), np.zeros((2, 2), bool))
    assert_within(norm, [[2, 1], [4, 1]], 16 * eps(np.float32), "norm")
    assert_within(factor, [[0.5, 1], [0.5, 1]], 8 * eps(np.float32), "factor")


def test_eval_shape(implementation):
    factor, norm = jax.eval_shape(
        lambda s, p: ops.clip_factor(s, 1.0, p), np.ones((3, 2), np.float32), np.zeros(2, bool)
    )
    assert factor.shape == norm.shape == (2,)
    assert factor.dtype == norm.dtype == jnp.float32


def test_errors():
    squares, padding = np.ones((3, 2), np.float32), np.zeros(2, bool)
    with pytest.raises(ValueError, match=r"clipping must be one of \('abadi', .*got 'flat'"):
        ops.clip_factor(squares, 1.0, padding, clipping="flat")
    expected = r"clip_factor expects squared norms \[K, B\] and is_padding \[B\]; got"
    with pytest.raises(ValueError, match=expected + r" \(3,\) and \(2,\)"):
        ops.clip_factor(squares[:, 0], 1.0, padding)
    with pytest.raises(ValueError, match=expected + r" \(3, 2\) and \(3,\)"):
        ops.clip_factor(squares, 1.0, np.zeros(3, bool))


# --- the guarantee ---

COMPILED = {}
PARTS, EXAMPLES = 2, 6


def floats(low, high):
    return st.floats(low, high, allow_subnormal=False, width=32)


@given(
    clipping=st.sampled_from(NAMES),
    squares=st.lists(
        st.one_of(floats(TINY, 2.0**120), st.sampled_from([0.0, np.inf, np.nan, 1.0, 4.0, TINY])),
        min_size=PARTS * EXAMPLES,
        max_size=PARTS * EXAMPLES,
    ),
    clip_norm=st.one_of(floats(2.0**-60, 2.0**60), st.sampled_from([0.0, 1.0, 2.0, 0.1])),
)
def test_factor_times_norm_never_exceeds_the_clip_norm(
    implementation, real, clipping, squares, clip_norm
):
    key = (implementation, real, clipping)
    if key not in COMPILED:
        COMPILED[key] = fresh_jit(lambda *xs: ops.clip_factor(*xs, clipping=clipping))
    squares = np.asarray(squares, real).reshape(PARTS, EXAMPLES)
    bound = np.asarray(clip_norm, real)
    factors, norms = jax.tree.map(
        np.asarray, COMPILED[key](squares, bound, np.zeros(EXAMPLES, bool))
    )
    for i in range(EXAMPLES):
        if not np.all(np.isfinite(squares[:, i])):
            assert factors[i] == 0
            assert not np.isfinite(norms[i])
            continue
        check_one(squares[:, i], float(bound), float(factors[i]), float(norms[i]), clipping, real)


def check_one(squares, clip_norm, factor, norm, clipping, real):
    """Exactly: the norm is an upper bound, the product is at most R. Nearly: neither by much."""
    total = sum(Fraction(float(s)) for s in squares)
    assert Fraction(norm) ** 2 >= total
    assert Fraction(norm) ** 2 <= total * (1 + Fraction(64 * eps(real)))
    assert factor >= 0
    assert Fraction(factor) * Fraction(norm) <= Fraction(clip_norm)
    if clip_norm == 0:
        assert factor == 0
        return
    if clipping == "indicator":
        assert factor == (1.0 if norm <= clip_norm else 0.0)
        return
    ideal = {
        "abadi": min(clip_norm / norm, 1.0) if norm else 1.0,
        "automatic": clip_norm / (norm + 0.01),
        "normalize": clip_norm / norm if norm else 0.0,
    }[clipping]
    if 2.0**-100 < ideal < 2.0**100:  # where float32 does not underflow or overflow
        assert factor >= ideal * (1 - 8 * eps(real))
        assert factor <= ideal * (1 + 8 * eps(real))
