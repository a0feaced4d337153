"""Noise that combines the draws of several keys: the same sum wherever it is made."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.arrays import normals
from support.structure import custom_calls, fresh_jit
from support.tolerance import assert_bits_equal, assert_within, eps

from bk_jax import ops
from bk_jax.ops.banded_gaussian import banded_gaussian_twin

KEYS = np.arange(32, dtype=np.uint32).reshape(4, 8)
STDDEVS = np.asarray([1.5, -0.7, 0.0, 0.1], np.float32)


def draw(x, keys=KEYS, stddevs=STDDEVS, **options):
    run = fresh_jit(lambda x, keys, s: ops.banded_gaussian(x, keys, s, **options))
    return np.asarray(run(x, keys, stddevs))


def one_by_one(x, keys=KEYS, stddevs=STDDEVS, **options):
    """The draws in float64, from calls of `gaussian` that hold one each."""
    run = fresh_jit(lambda key: ops.gaussian(jnp.zeros(x.shape, jnp.float32), key, 1.0, **options))
    drawn = [np.asarray(run(key), np.float64) for key in keys]
    return x + sum(float(s) * z for s, z in zip(stddevs, drawn, strict=True))


def test_it_is_the_combination_of_the_draws(implementation):
    x = normals(0, (3, 500), np.float32)
    assert_within(draw(x), one_by_one(x), 16 * eps(np.float32) * (4 + np.abs(x)), "combination")


@pytest.mark.native
def test_one_draw_is_that_of_gaussian():
    zeros = np.zeros(3000, np.float32)
    single = fresh_jit(lambda x: ops.gaussian(x, KEYS[0], 1.5, stream=3))(zeros)
    assert_bits_equal(draw(zeros, KEYS[:1], STDDEVS[:1], stream=3), np.asarray(single))
    first = np.asarray([1.5, 0, 0, 0], np.float32)
    assert_bits_equal(draw(zeros, stddevs=first, stream=3), np.asarray(single))


@pytest.mark.native
def test_one_pass_has_the_bits_of_draw_by_draw(dtype):
    """The twin makes each draw by a custom call: the same sums in the same order."""
    wide = jnp.promote_types(dtype, jnp.float32)
    x = normals(1, (7, 301), dtype)
    start = np.asarray([2, 5], np.int32)
    options = {"stream": 1, "whole": (20, 400)}

    def twin(x, keys, stddevs):
        made = banded_gaussian_twin(x.astype(wide), keys, stddevs, start, **options)
        return made[0].astype(dtype)

    scales = STDDEVS.astype(wide)
    expected = np.asarray(fresh_jit(twin)(x, KEYS, scales))
    assert_bits_equal(draw(x, stddevs=scales, start=start, **options), expected)


@pytest.mark.native
def test_one_custom_call_makes_all_draws():
    run = jax.jit(lambda x: ops.banded_gaussian(x, KEYS, STDDEVS))
    hlo = run.lower(np.zeros(1000, np.float32)).compile().as_text()
    assert custom_calls(hlo) == ["bk_banded_gaussian"]


def test_blocks_are_parts_of_the_whole(implementation):
    whole = draw(np.zeros((4, 300), np.float32))
    part = draw(np.zeros((2, 100), np.float32), start=[1, 50], whole=[4, 300])
    expected = whole[1:3, 50:150]
    assert_within(part, expected, 8 * eps(np.float32) * (1 + np.abs(expected)), "part")
    if implementation == "native":
        assert_bits_equal(part, expected)


def test_without_noise_nothing_changes(implementation, dtype):
    x = np.asarray([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, 1e-7], dtype)
    assert_bits_equal(draw(x, stddevs=np.zeros(4, np.float32)), x)


@pytest.mark.parametrize(
    ("keys", "stddevs", "message"),
    [
        (
            KEYS,
            STDDEVS[:3],
            "expects keys uint32[terms, 8] and stddevs [terms]; got [4, 8] and [3]",
        ),
        (KEYS[0], 1.0, "got [8] and []"),
        (KEYS.astype(np.float32), STDDEVS, "expects keys of uint32, got float32"),
    ],
)
def test_errors(keys, stddevs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ops.banded_gaussian(jnp.zeros(3), keys, stddevs)
