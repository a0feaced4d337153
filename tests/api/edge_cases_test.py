"""Every row of the table of edge cases in the docstring of `dp_value_and_grad`."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.models import linear_loss, mlp, mlp_batch, mlp_loss
from support.oracle import check_against_oracle
from support.tolerance import assert_bits_equal

import bk_jax

# What the tests below show. A new row in the docstring needs a test and an entry here.
ROWS = {
    "empty batch": ["test_empty_batch", "test_empty_batch_is_noised"],
    "padding example (`is_padding_example`)": ["test_padding_contributes_exactly_nothing"],
    "example whose gradient is NaN or infinite": ["test_a_bad_example_contributes_exactly_nothing"],
    "R = 0": ["test_clip_norm_zero"],
    "R = inf": ["test_clip_norm_infinite"],
    "zero gradient": ["test_zero_gradient"],
    "integer or boolean leaf": ["test_integer_and_boolean_leaves"],
    "parameter that the loss does not use": ["test_unused_parameters"],
    "empty parameter tree": ["test_empty_parameter_tree"],
}


def test_every_row_of_the_docstring_has_a_test():
    rows = re.findall(r"^ *\| (.+?) \| .+ \|$", bk_jax.dp_value_and_grad.__doc__, re.MULTILINE)
    assert [row for row in rows if row != "case"] == list(ROWS)
    assert {name for names in ROWS.values() for name in names} <= set(globals())


def run(loss_fn, *args, key=None, is_padding_example=None, **options):
    options = {"noise_multiplier": 0.0 if key is None else 1.0, "return_stats": True, **options}
    grad_fn = jax.jit(bk_jax.dp_value_and_grad(loss_fn, **options))
    return jax.tree.map(np.asarray, grad_fn(*args, key=key, is_padding_example=is_padding_example))


def assert_same(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert_bits_equal(a, b)


# --- empty batch ---


def test_empty_batch(implementation):
    params = mlp()
    value, grads, stats = run(mlp_loss, params, mlp_batch(0))
    assert value == 0
    assert_same(grads, jax.tree.map(np.zeros_like, params))
    assert stats.losses.shape == stats.norms.shape == stats.clip_factors.shape == (0,)
    assert stats.clipped_fraction == 0
    assert stats.nonfinite_count == 0


def test_empty_batch_is_noised():
    """The same noise as for a batch whose examples contribute nothing."""
    w, x, key = np.ones((3, 2), np.float32), np.ones((2, 3), np.float32), jax.random.key(0)

    def loss(w, x):
        return jnp.sum(x @ w)

    _, empty, _ = run(loss, w, x[:0], key=key)
    _, padded, _ = run(loss, w, x, key=key, is_padding_example=np.ones(2, bool))
    assert_bits_equal(empty, padded)
    assert np.all(empty != 0)


# --- examples that must not count ---


@pytest.fixture(scope="module")
def step():
    """One compiled step for all tests that differ in data alone."""
    return jax.jit(bk_jax.dp_value_and_grad(mlp_loss, noise_multiplier=0.0, return_stats=True))


def with_example(batch, index, value):
    x, y = (a.copy() for a in batch)
    x[index] = value
    return x, y


@pytest.mark.parametrize("content", [0.0, 3.0, np.nan, np.inf, 1e30])
def test_padding_contributes_exactly_nothing(step, content):
    params, batch = mlp(), mlp_batch(4)
    padding = np.asarray([False, False, True, False])
    value, grads, stats = step(params, with_example(batch, 2, content), is_padding_example=padding)
    plain_value, plain, plain_stats = step(params, batch, is_padding_example=padding)
    assert_same(grads, plain)
    assert_bits_equal(value, plain_value)
    assert stats.clip_factors[2] == 0
    assert stats.nonfinite_count == 0
    assert_bits_equal(stats.clipped_fraction, plain_stats.clipped_fraction)


def test_padding_is_the_same_as_leaving_out():
    params, batch = mlp(), mlp_batch(4)
    kept = np.asarray([0, 1, 3])
    padding = np.asarray([False, False, True, False])
    value, grads, stats = run(mlp_loss, params, batch, is_padding_example=padding)
    fewer_value, fewer, fewer_stats = run(mlp_loss, params, tuple(a[kept] for a in batch))
    np.testing.assert_allclose(value, fewer_value, rtol=1e-6)
    for name in params:
        np.testing.assert_allclose(grads[name], fewer[name], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stats.norms[kept], fewer_stats.norms, rtol=1e-6)


@pytest.mark.parametrize("content", [np.nan, np.inf, -np.inf, 3e38])
def test_a_bad_example_contributes_exactly_nothing(step, content):
    params, batch = mlp(), mlp_batch(4)
    none = np.zeros(4, bool)
    _, grads, stats = step(params, with_example(batch, 2, content), is_padding_example=none)
    without = np.asarray([False, False, True, False])
    _, expected, _ = step(params, batch, is_padding_example=without)
    assert stats.clip_factors[2] == 0
    assert not np.isfinite(stats.norms[2])
    assert stats.nonfinite_count == 1
    assert_same(grads, expected)


def test_bad_examples_against_the_oracle():
    x, y = mlp_batch(6)
    x[1, 0], x[4, 2], y[5] = np.nan, np.inf, -np.inf
    padding = np.asarray([False] * 5 + [True])
    _, _, stats = run(mlp_loss, mlp(), (x, y), is_padding_example=padding)
    assert stats.nonfinite_count == 2
    assert stats.clip_factors.tolist().count(0.0) == 3


def test_a_bad_example_contributes_nothing_to_any_clip_group():
    params = {"a": np.ones(1, np.float32), "b": np.ones(1, np.float32)}
    _, grads, stats = run(
        lambda w, x: jnp.sum(x[:, 0] * w["a"]) + jnp.sum(x[:, 1] * w["b"]),
        params,
        np.float32([[1, np.nan], [0.25, 0.5]]),
        l2_clip_norm={"a": 1.0, "b": 1.0},
    )
    assert grads["a"] == 0.25
    assert grads["b"] == 0.5
    assert stats.clip_factors[0].tolist() == [0.0, 0.0]
    assert stats.nonfinite_count == 1


@pytest.mark.parametrize("method", ["ghost_clip", "opacus"])
def test_a_bad_example_with_other_methods(method):
    x, y = mlp_batch(4)
    x[2] = np.nan
    _, grads, stats = run(mlp_loss, mlp(), (x, y), method=method)
    assert stats.nonfinite_count == 1
    assert all(np.all(np.isfinite(g)) for g in grads.values())


# --- clip norms ---


@pytest.mark.parametrize("clipping", ["abadi", "automatic", "normalize", "indicator"])
def test_clip_norm_zero(clipping):
    params, batch = mlp(), mlp_batch(3)
    options = {"l2_clip_norm": 0.0, "clipping": clipping}
    _, grads, stats = run(mlp_loss, params, batch, **options)
    assert stats.clip_factors.tolist() == [0.0] * 3
    assert_same(grads, jax.tree.map(np.zeros_like, params))


def test_clip_norm_zero_has_no_noise():
    params = {"used": np.ones(3, np.float32), "unused": np.ones(2, np.float32)}
    _, grads, _ = run(
        lambda p, x: linear_loss(p["used"], x),
        params,
        np.ones((2, 3), np.float32),
        key=jax.random.key(0),
        l2_clip_norm=0.0,
    )
    assert all(not np.any(g) for g in grads.values())


@pytest.mark.parametrize("clipping", ["abadi", "indicator"])
def test_clip_norm_infinite(x64, clipping):
    """The sum of gradients, as `jax.grad` of the sum of losses gives it."""
    params, batch = mlp(np.float64), mlp_batch(5, np.float64)
    _, grads, stats = check_against_oracle(
        mlp_loss, params, batch, l2_clip_norm=np.inf, clipping=clipping
    )
    assert stats.clip_factors.tolist() == [1.0] * 5
    assert stats.clipped_fraction == 0

    def total(params):
        return sum(mlp_loss(params, tuple(a[i : i + 1] for a in batch)) for i in range(5))

    for name, expected in jax.jit(jax.grad(total))(params).items():
        np.testing.assert_allclose(grads[name], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("clipping", "factor"),
    [("abadi", 1.0), ("automatic", 200.0), ("normalize", 0.0), ("indicator", 1.0)],
)
def test_zero_gradient(clipping, factor):
    x = np.float32([[0, 0, 0], [0.3, 0, 0]])
    w = np.ones((3, 2), np.float32)
    _, grads, stats = run(lambda w, x: jnp.sum(x @ w), w, x, l2_clip_norm=2.0, clipping=clipping)
    assert stats.norms[0] == 0
    np.testing.assert_allclose(stats.clip_factors[0], factor, rtol=1e-6)
    assert not np.any(grads[1:])
    assert np.all(grads[0] > 0)


# --- parameters ---


@pytest.mark.parametrize("key", [None, 0])
def test_integer_and_boolean_leaves(key):
    params = {
        "w": np.ones((3, 2), np.float32),
        "steps": np.int32(7),
        "mask": np.asarray([True, False, True]),
        "table": np.arange(4, dtype=np.uint8),
    }

    def loss(params, x):
        return jnp.sum((x * params["mask"]) @ params["w"]) * params["steps"]

    key = None if key is None else jax.random.key(key)
    _, grads, _ = run(loss, params, np.ones((2, 3), np.float32), key=key)
    for name in ("steps", "mask", "table"):
        assert_bits_equal(grads[name], np.zeros_like(params[name]))
    assert np.any(grads["w"])


def test_only_integer_leaves():
    value, grads, stats = run(
        lambda p, x: jnp.sum(x) * p["n"], {"n": np.int32(2)}, np.ones((2, 3), np.float32)
    )
    assert value == 6
    assert_bits_equal(grads["n"], np.int32(0))
    assert stats.norms.tolist() == [0.0, 0.0]


def test_unused_parameters():
    params = {"used": np.ones(3, np.float32), "unused": np.ones((50, 2), np.float32)}

    def loss(params, x):
        return linear_loss(params["used"], x)

    x = np.ones((2, 3), np.float32)
    _, grads, _ = run(loss, params, x)
    assert not np.any(grads["unused"])
    _, noisy, _ = run(loss, params, x, key=jax.random.key(0))
    assert np.all(noisy["unused"] != 0)
    assert 0.5 < np.std(noisy["unused"]) < 1.5


@pytest.mark.parametrize("params", [{}, (), None, {"a": None, "b": []}])
def test_empty_parameter_tree(params):
    x = np.ones((2, 3), np.float32)
    value, grads, stats = run(lambda p, x: jnp.sum(x), params, x, key=jax.random.key(0))
    assert value == 3
    assert jax.tree.structure(grads) == jax.tree.structure(params)
    assert stats.norms.tolist() == [0.0, 0.0]


def test_a_parameter_without_elements():
    params = {"w": np.ones((3, 0), np.float32), "v": np.ones(3, np.float32)}

    def loss(params, x):
        return jnp.sum(x @ params["w"]) + linear_loss(params["v"], x)

    _, grads, _ = run(loss, params, np.ones((2, 3), np.float32))
    assert grads["w"].shape == (3, 0)
    assert np.all(grads["v"] > 0)


def test_scalar_parameters(x64):
    def loss(params, x):
        return jnp.sum(jnp.tanh(params["a"] * x + params["b"]))

    params = {"a": np.float64(0.5), "b": 2.0}
    check_against_oracle(loss, params, np.random.default_rng(0).normal(size=(4, 3)))


# --- sizes ---


def test_one_example(real):
    check_against_oracle(mlp_loss, mlp(real), mlp_batch(1, real))


def test_one_token(real):
    check_against_oracle(mlp_loss, mlp(real), mlp_batch(4, real, tokens=(1,)))


def test_width_one(x64):
    sizes = (1, 1, 1)
    check_against_oracle(mlp_loss, mlp(np.float64, sizes), mlp_batch(4, np.float64, sizes))


def test_a_loss_that_ignores_its_parameters():
    w = np.ones((3, 2), np.float32)
    value, grads, stats = run(lambda w, x: 5.0, w, np.ones((2, 3), np.float32))
    assert value == 5
    assert not np.any(grads)
    assert stats.norms.tolist() == [0.0, 0.0]
