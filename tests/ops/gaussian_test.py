"""Gaussian noise: one value per key, stream and position, wherever and however it is made."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.arrays import normals
from support.structure import fresh_jit
from support.tolerance import assert_bits_equal, assert_within, eps

from bk_jax import ops
from bk_jax.ops.gaussian import gaussian_twin

KEY = np.arange(8, dtype=np.uint32)
LARGE = 2**20
# Blocks (size, start, whole): all of an array, and parts of it whose rows have neighbours elsewhere.
BLOCKS = [
    ((), (), ()),
    ((1000,), (0,), (1000,)),
    ((3, 5, 7), (0, 0, 0), (3, 5, 7)),
    ((2, 5, 7), (1, 0, 0), (3, 5, 7)),
    ((3, 2, 7), (0, 3, 0), (3, 5, 7)),
    ((2, 1, 300), (1, 2, 50), (3, 4, 400)),
    ((3, 300), (LARGE - 5, LARGE - 301), (LARGE, LARGE)),  # positions around 2^40
    ((0, 7), (3, 0), (3, 7)),
]


def draw(x, stddev=1.0, key=KEY, **options):
    run = fresh_jit(lambda x, key, stddev: ops.gaussian(x, key, stddev, **options))
    return np.asarray(run(x, key, stddev))


@pytest.mark.native
def test_twin_and_native_agree(dtype):
    """ChaCha is equal; XLA may contract multiply-adds: 16 roundings, then the type's own."""
    wide = jnp.promote_types(dtype, jnp.float32)
    arrays = [normals(0, size, dtype) for size, _, _ in BLOCKS]

    def native(x, start, whole):
        return ops.gaussian(x, KEY, 0.5, stream=3, start=start, whole=whole)

    def twin(x, start, whole):
        at = jnp.asarray(start, jnp.int32)
        return gaussian_twin(x, KEY, wide.type(0.5), at, stream=3, whole=whole)[0]

    @jax.jit
    def both(arrays):
        blocks = [(x, start, whole) for x, (_, start, whole) in zip(arrays, BLOCKS, strict=True)]
        return [(native(*block), twin(*block)) for block in blocks]

    for x, (out, expected) in zip(arrays, both(arrays), strict=True):
        assert (out.dtype, out.shape) == (dtype, x.shape)
        scale = 1 + np.abs(np.asarray(expected).astype(np.float64))
        assert_within(out, expected, (16 * eps(wide) + 0.5 * eps(dtype)) * scale, str(x.shape))


def test_blocks_are_parts_of_the_whole(implementation):
    shape = (4, 6, 150)
    whole = draw(np.zeros(shape, np.float32))
    for start, size in [
        ((0, 0, 0), (2, 6, 150)),
        ((1, 2, 3), (2, 3, 100)),
        ((0, 5, 0), (4, 1, 150)),
    ]:
        part = draw(np.zeros(size, np.float32), start=start, whole=shape)
        cut = tuple(slice(at, at + n) for at, n in zip(start, size, strict=True))
        assert_within(part, whole[cut], 4 * eps(np.float32) * np.abs(whole[cut]), str(start))
        if implementation == "native":
            assert_bits_equal(part, whole[cut])


def test_start_may_be_traced(implementation):
    """One program for all devices: the start is an operand."""
    shape = (4, 150)
    part = fresh_jit(
        lambda i: ops.gaussian(jnp.zeros((1, 150)), KEY, 1.0, start=[i, 0], whole=shape)
    )
    rows = np.concatenate([part(np.int32(i)) for i in range(4)])
    np.testing.assert_allclose(rows, draw(np.zeros(shape, np.float32)), rtol=1e-6)


def test_keys_streams_and_positions_decide(implementation):
    zeros = np.zeros(1000, np.float32)
    first = draw(zeros)
    assert_bits_equal(draw(zeros), first)
    assert not np.any(draw(zeros, stream=1) == first)
    assert not np.any(draw(zeros, key=KEY ^ np.uint32(1)) == first)
    assert len(np.unique(first)) == 1000


def test_the_scale(implementation):
    zeros = np.zeros(10_000, np.float32)
    assert_bits_equal(draw(zeros, 4.0), 4 * draw(zeros))
    assert abs(np.std(draw(zeros)) - 1) < 5 / np.sqrt(2 * 10_000)


def test_without_noise_nothing_changes(implementation, dtype):
    x = np.asarray([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, 1e-7], dtype)
    assert_bits_equal(draw(x, 0.0), x)


def test_what_is_not_finite_stays_so(implementation, dtype):
    out = draw(np.asarray([np.inf, -np.inf, np.nan, 1.0], dtype)).astype(np.float64)
    assert out[0] == np.inf
    assert out[1] == -np.inf
    assert np.isnan(out[2])
    assert np.isfinite(out[3])


def test_sixteen_bits_are_rounded_once(implementation):
    """The sum is made in float32: bfloat16 has the same normals as float32."""
    x = normals(0, (1000,), jnp.bfloat16)
    expected = draw(x.astype(np.float32), 0.5).astype(jnp.bfloat16)
    assert_within(draw(x, 0.5), expected, eps(jnp.bfloat16) * (1 + np.abs(expected)), "bfloat16")
    if implementation == "native":
        assert_bits_equal(draw(x, 0.5), expected)


def test_other_types_go_through_float32(implementation):
    x = np.zeros(100, jnp.float8_e4m3fn)
    assert_bits_equal(draw(x), draw(np.zeros(100, np.float32)).astype(jnp.float8_e4m3fn))


@pytest.mark.native
def test_no_copy_of_what_nobody_else_needs():
    """A sum that only the noise reads is overwritten; an argument that is not donated is copied."""

    def step(a, b):
        return ops.gaussian(a @ b, KEY, 1.0)

    a, b = np.ones((300, 200), np.float32), np.ones((200, 400), np.float32)
    compiled = jax.jit(step).lower(a, b).compile()
    assert not re.search(r"= f32\[300,400\]\S* copy", compiled.as_text())
    assert "output_to_operand_aliasing" in compiled.as_text()
    assert compiled.memory_analysis().temp_size_in_bytes < 300 * 400 * 4
    x = np.ones((300, 400), np.float32)
    before = x.copy()
    jax.jit(lambda x: ops.gaussian(x, KEY, 1.0))(x)
    assert_bits_equal(x, before)


def test_vmap(implementation):
    """Over keys each row has its own noise; over x alone the noise is shared."""
    keys = np.arange(24, dtype=np.uint32).reshape(3, 8)
    x = np.zeros((3, 50), np.float32)
    rows = jax.jit(jax.vmap(lambda x, key: ops.gaussian(x, key, 1.0)))(x, keys)
    for i in range(3):
        np.testing.assert_allclose(rows[i], draw(x[i], key=keys[i]), rtol=1e-6)
    same = jax.jit(jax.vmap(lambda x: ops.gaussian(x, KEY, 1.0)))(x)
    np.testing.assert_array_equal(same[0], same[2])


def test_eval_shape(implementation):
    out = jax.eval_shape(lambda x: ops.gaussian(x, KEY, 1.0), np.zeros((2, 3), jnp.float16))
    assert (out.shape, out.dtype) == ((2, 3), jnp.float16)


def test_errors():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match=r"gaussian expects a key uint32\[8\], got uint32\[2\]"):
        ops.gaussian(x, np.zeros(2, np.uint32), 1.0)
    with pytest.raises(ValueError, match="gaussian expects start and whole together"):
        ops.gaussian(x, KEY, 1.0, start=[0, 0])
    for start, whole in [([0, 0], [2, 2]), ([0], [2, 3]), ([0, 0], [2, 3, 1])]:
        with pytest.raises(ValueError, match=r"got x \(2, 3\), whole"):
            ops.gaussian(x, KEY, 1.0, start=start, whole=whole)
