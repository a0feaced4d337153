"""Noise and update in one pass: the arithmetic of optax, the noise of `gaussian`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.arrays import normals
from support.structure import custom_calls, fresh_jit
from support.tolerance import assert_bits_equal, assert_within, eps

from bk_jax import ops
from bk_jax.ops.gaussians import TOGETHER
from bk_jax.ops.noisy_update import MOMENTS, Leaf, Numbers

KEY = np.arange(8, dtype=np.uint32)
# Around the widths of vectors, of groups of noise and of tasks.
SIZES = (0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 255, 256, 257, 1023, 1025, 16384, 16385)
SHAPES = [(size,) for size in SIZES] + [(), (3, 5, 7), (1, 1)]
DIVISOR = 3.0
RATE, DECAY, SECOND, EPSILON, ROOT, WEIGHT = 0.01, 0.9, 0.999, 1e-8, 1e-12, 0.1
TRANSFORMATIONS = {
    "sgd": optax.sgd(RATE),
    "momentum": optax.sgd(RATE, DECAY),
    "nesterov": optax.sgd(RATE, DECAY, nesterov=True),
    "adam": optax.adam(RATE, DECAY, SECOND, EPSILON, ROOT),
    "adamw": optax.adamw(RATE, DECAY, SECOND, EPSILON, ROOT, weight_decay=WEIGHT),
}


def numbers(stddev=0.7, count=3):
    """Those of update number `count`; corrections as optax computes them."""
    return Numbers(
        stddev, 1 / np.float32(DIVISOR), -RATE, DECAY, 1 - DECAY, SECOND, 1 - SECOND,
        unbias(DECAY, count), unbias(SECOND, count), ROOT, EPSILON, WEIGHT,
    )  # fmt: skip


@jax.jit
def unbias(decay, count):
    return 1 / (1 - decay**count)


def leaves_of(shapes, optimizer):
    def leaf(seed, shape):
        total, x, m, v = (normals(4 * seed + k, shape, np.float32) for k in range(4))
        return Leaf(total, x, (m, np.abs(v))[: MOMENTS[optimizer]])

    return [leaf(seed, shape) for seed, shape in enumerate(shapes)]


def state_of(optimizer, leaves, count):
    """The state of optax's transformation with these moments."""
    transformation = TRANSFORMATIONS[optimizer]
    state = transformation.init([leaf.parameter for leaf in leaves])
    columns = [list(column) for column in zip(*(leaf.moments for leaf in leaves), strict=True)]
    if MOMENTS[optimizer] == 1:
        state = (state[0]._replace(trace=columns[0]), *state[1:])
    if MOMENTS[optimizer] == 2:
        first = state[0]._replace(mu=columns[0], nu=columns[1], count=jnp.int32(count))
        state = (first, *state[1:])
    return state


def in_steps(leaves, given, optimizer, count):
    """Noise, division, optax; op by op outside of `jit`."""
    noisy = [
        ops.gaussian(jnp.asarray(leaf.sum), KEY, given.stddev, stream=i)
        for i, leaf in enumerate(leaves)
    ]
    grads = [total / DIVISOR for total in noisy]
    params = [jnp.asarray(leaf.parameter) for leaf in leaves]
    transformation = TRANSFORMATIONS[optimizer]
    state = state_of(optimizer, leaves, count)
    updates, state = transformation.update(grads, state, params)
    names = [(), ("trace",), ("mu", "nu")][MOMENTS[optimizer]]
    columns = [optax.apply_updates(params, updates), *(getattr(state[0], name) for name in names)]
    return list(zip(*columns, strict=True))


def flat(found):
    return [np.asarray(array) for leaf in found for array in leaf]


@pytest.mark.parametrize("optimizer", MOMENTS)
def test_op_by_op_it_is_optax_bit_for_bit(implementation, optimizer):
    """One array at a time: optax compiles the bias corrections of several together."""
    for shape in [(1,), (17,), (9, 257)]:
        leaves = leaves_of([shape], optimizer)
        found = ops.noisy_update(leaves, KEY, numbers(count=3), optimizer=optimizer)
        expected = in_steps(leaves, numbers(), optimizer, count=2)
        for out, right in zip(flat(found), flat(expected), strict=True):
            assert_bits_equal(out, right, str(shape))


@pytest.mark.parametrize("optimizer", MOMENTS)
def test_compiled_it_is_optax_up_to_rounding(implementation, optimizer):
    """XLA contracts multiply-adds and multiplies by reciprocals: a few roundings of what is added.

    The direction of Adam is at most a hundred here, its moments of size 1; 16 roundings of each.
    """
    leaves = leaves_of(SHAPES, optimizer)
    run = fresh_jit(lambda leaves: ops.noisy_update(leaves, KEY, numbers(), optimizer=optimizer))
    expected = in_steps(leaves, numbers(), optimizer, count=2)
    for out, right in zip(flat(run(leaves)), flat(expected), strict=True):
        scale = 4 + np.abs(right)
        assert_within(out, right, 16 * eps(np.float32) * scale, str(right.shape))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov"])
def test_whole_numbers_are_exact(implementation, optimizer):
    """Compiled too: nothing is rounded."""
    rng = np.random.default_rng(0)
    draw = [4 * rng.integers(-8, 8, (4, 100)).astype(np.float32) for _ in range(3)]
    total, x, m = draw[0], draw[1], draw[2]
    given = Numbers(stddev=0.0, scale=0.5, step=-0.5, decay=0.5)
    leaf = Leaf(total, x, (m,)[: MOMENTS[optimizer]])
    run = fresh_jit(lambda leaf: ops.noisy_update([leaf], KEY, given, optimizer=optimizer))
    ((found, *moments),) = run(leaf)
    g, new = total / 2, total / 2 + m / 2
    expected = {"sgd": x - g / 2, "momentum": x - new / 2, "nesterov": x - (g + new / 2) / 2}
    np.testing.assert_array_equal(found, expected[optimizer])
    for moment in moments:
        np.testing.assert_array_equal(moment, new)


@pytest.mark.native
def test_small_leaves_share_a_call_and_large_ones_have_their_own():
    leaves = leaves_of([(TOGETHER + 1,), (3,), (TOGETHER,), (TOGETHER + 2,)], "sgd")
    run = jax.jit(lambda leaves: ops.noisy_update(leaves, KEY, numbers(), optimizer="sgd"))
    hlo = run.lower(leaves).compile().as_text()
    assert custom_calls(hlo) == ["bk_noisy_update"] * 3
    expected = in_steps(leaves, numbers(), "sgd", count=2)
    for out, right in zip(flat(run(leaves)), flat(expected), strict=True):
        assert_bits_equal(out, right)


@pytest.mark.native
@pytest.mark.parametrize("optimizer", MOMENTS)
def test_donated_arrays_are_overwritten_and_others_are_not(optimizer):
    leaves = leaves_of([(300, 300), (7,)], optimizer)
    updated = [(leaf.parameter, *leaf.moments) for leaf in leaves]
    sums = [leaf.sum for leaf in leaves]

    def step(updated, sums):
        made = [Leaf(total, x, tuple(m)) for total, (x, *m) in zip(sums, updated, strict=True)]
        return ops.noisy_update(made, KEY, numbers(), optimizer=optimizer)

    donating = jax.jit(step, donate_argnums=0).lower(updated, sums).compile()
    assert donating.memory_analysis().temp_size_in_bytes < 300 * 300 * 4
    assert not any(
        " copy(" in line and "300,300" in line for line in donating.as_text().split("\n")
    )
    kept = jax.tree.map(np.copy, updated)
    expected = jax.jit(step)(updated, sums)
    jax.tree.map(assert_bits_equal, updated, kept)
    found = donating(jax.tree.map(jnp.array, updated), jax.tree.map(jnp.array, sums))
    jax.tree.map(assert_bits_equal, found, expected)


def test_a_scan_of_updates(implementation):
    """Donated in a loop: the state of one step is the next one's."""
    (leaf,) = leaves_of([(1000,)], "momentum")
    keys = np.arange(24, dtype=np.uint32).reshape(3, 8)

    def one(carry, key):
        state = Leaf(leaf.sum, carry[0], (carry[1],))
        (new,) = ops.noisy_update([state], key, numbers(), optimizer="momentum")
        return new, None

    start = (leaf.parameter, *leaf.moments)
    scanned, _ = fresh_jit(lambda start, keys: jax.lax.scan(one, start, keys))(start, keys)
    single = fresh_jit(lambda carry, key: one(carry, key)[0])
    state = start
    for key in keys:
        state = single(state, key)
    for found, expected in zip(scanned, state, strict=True):
        assert_within(found, expected, 16 * eps(np.float32) * (1 + np.abs(expected)), "scan")


def test_without_noise_the_key_does_not_matter(implementation):
    leaves = leaves_of([(50,)], "sgd")
    run = fresh_jit(lambda key: ops.noisy_update(leaves, key, numbers(0.0), optimizer="sgd"))
    assert_bits_equal(run(KEY)[0][0], run(KEY + 1)[0][0])


def test_vmap_over_keys(implementation):
    (leaf,) = leaves_of([(50,)], "sgd")
    keys = np.arange(24, dtype=np.uint32).reshape(3, 8)

    def one(key):
        return ops.noisy_update([leaf], key, numbers(), optimizer="sgd")[0][0]

    rows = fresh_jit(jax.vmap(one))(keys)
    for row, key in zip(rows, keys, strict=True):
        np.testing.assert_allclose(row, fresh_jit(one)(key), rtol=1e-5, atol=1e-6)


def test_no_leaves(implementation):
    assert ops.noisy_update([], KEY, numbers(), optimizer="adam") == []


def test_errors():
    x = np.zeros(3, np.float32)
    given = numbers()
    with pytest.raises(ValueError, match=r"noisy_update expects a key uint32\[8\]"):
        ops.noisy_update([Leaf(x, x)], KEY[:2], given, optimizer="sgd")
    with pytest.raises(ValueError, match=r"optimizer to be one of 'sgd', .*; got 'lion'"):
        ops.noisy_update([Leaf(x, x)], KEY, given, optimizer="lion")
    with pytest.raises(ValueError, match="expects 2 moments for optimizer='adam'; leaf 0 has 1"):
        ops.noisy_update([Leaf(x, x, (x,))], KEY, given, optimizer="adam")
    with pytest.raises(
        ValueError, match=r"leaf 1 has a sum of shape \(3,\) and float32 of .*\(2,\)"
    ):
        ops.noisy_update([Leaf(x, x), Leaf(x, x[:2])], KEY, given, optimizer="sgd")
    with pytest.raises(ValueError, match=r"expects float32 arrays .*float16"):
        ops.noisy_update([Leaf(x, x.astype(np.float16))], KEY, given, optimizer="sgd")
