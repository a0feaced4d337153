"""Gradients that are scaled before they are clipped.

Scaling by `s` is a change of variables, `w = s v`: the gradient with respect to `v` is `s` times that
with respect to `w`. So the transform of `v -> loss(s v)`, which knows nothing of scales, has the answer.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.models import linear_loss, mlp, mlp_batch, mlp_loss
from support.tolerance import assert_bits_equal

import bk_jax
from bk_jax.planning.methods import METHODS
from bk_jax.scaling import BY_ELEMENT

PARAMS, BATCH = mlp(), mlp_batch(6)


def powers(params):
    """A power of two for each leaf, so that a change of variables rounds nothing."""
    leaves, treedef = jax.tree.flatten(params)
    return jax.tree.unflatten(treedef, [2.0 ** (k % 5 - 2) for k in range(len(leaves))])


def by_change_of_variables(loss_fn, scale, params, batch, **options):
    def loss(v, batch):
        return loss_fn(jax.tree.map(jnp.multiply, v, scale), batch)

    v = jax.tree.map(lambda w, s: w / np.asarray(s, w.dtype), params, scale)
    return clipped(loss, v, batch, method="opacus", **options)


def clipped(loss, params, batch, **options):
    grad_fn = bk_jax.clipped_value_and_grad(loss, return_stats=True, **options)
    return jax.jit(grad_fn)(params, batch)


def assert_same(found, expected):
    (_, grads, stats), (_, right, right_stats) = found, expected
    np.testing.assert_allclose(stats.norms, right_stats.norms, rtol=1e-5)
    assert_close(grads, right)


def assert_close(grads, right):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), grads, right)


def test_by_mental_arithmetic():
    """Gradient (3, 4) times 2 has norm 10; clipped to 5 it is (3, 4)."""
    x, w = np.float32([[3, 4]]), np.zeros(2, np.float32)
    _, grads, stats = clipped(linear_loss, w, x, l2_clip_norm=5.0, pre_clip_scale=2.0)
    np.testing.assert_allclose(stats.norms, [10], rtol=1e-5)
    np.testing.assert_allclose(grads, [3, 4], rtol=1e-5)
    _, grads, stats = clipped(
        linear_loss, w, x, l2_clip_norm=5.0, pre_clip_scale=np.float32([4, 0.75])
    )
    np.testing.assert_allclose(stats.norms, [np.hypot(12, 3)], rtol=1e-5)
    np.testing.assert_allclose(grads, 5 * np.float64([12, 3]) / np.hypot(12, 3), rtol=1e-5)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_number_for_each_parameter(method):
    scale = powers(PARAMS)
    expected = by_change_of_variables(mlp_loss, scale, PARAMS, BATCH)
    assert_same(clipped(mlp_loss, PARAMS, BATCH, pre_clip_scale=scale, method=method), expected)


@pytest.mark.parametrize("options", [{}, {"microbatch_size": 2}, {"clipping": "automatic"}])
def test_numbers_for_elements_rows_and_columns(options):
    generator = np.random.default_rng(0)
    scale = jax.tree.map(
        lambda w: 2.0 ** generator.integers(-2, 3, (*w.shape[:-1], 1)[: w.ndim]), PARAMS
    )
    expected = by_change_of_variables(mlp_loss, scale, PARAMS, BATCH, **options)
    assert_same(clipped(mlp_loss, PARAMS, BATCH, pre_clip_scale=scale, **options), expected)


def test_numbers_with_clip_groups():
    scale = powers(PARAMS)
    norms = {name: 0.5 + k for k, name in enumerate(PARAMS)}
    expected = by_change_of_variables(mlp_loss, scale, PARAMS, BATCH, l2_clip_norm=norms)
    found = clipped(mlp_loss, PARAMS, BATCH, pre_clip_scale=scale, l2_clip_norm=norms)
    assert found[2].norms.shape == (6, len(norms))
    assert_same(found, expected)


def test_one_number_for_all_is_another_clip_norm():
    """Scaled by 4 and clipped to 4 R: four times what is clipped to R."""
    _, plain, _ = clipped(mlp_loss, PARAMS, BATCH, l2_clip_norm=0.5)
    _, scaled, _ = clipped(mlp_loss, PARAMS, BATCH, l2_clip_norm=2.0, pre_clip_scale=4.0)
    # Entries that nearly cancel have the roundings of their terms, which are below 2.
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=16 * 2**-24)
    jax.tree.map(lambda a, b: close(4 * a, b), plain, scaled)


def test_a_scale_may_be_traced():
    def grads(scale):
        grad_fn = bk_jax.clipped_value_and_grad(mlp_loss, pre_clip_scale=scale)
        return grad_fn(PARAMS, BATCH)[1]

    scale = powers(PARAMS)
    _, expected, _ = clipped(mlp_loss, PARAMS, BATCH, pre_clip_scale=scale)
    assert_close(jax.jit(grads)(scale), expected)


def test_numbers_keep_the_routes_and_arrays_of_elements_take_the_leaf_route():
    plain = bk_jax.dp_value_and_grad(mlp_loss).explain(PARAMS, BATCH)
    by_leaf = bk_jax.dp_value_and_grad(mlp_loss, pre_clip_scale=powers(PARAMS))
    assert by_leaf.explain(PARAMS, BATCH).routes() == plain.routes()
    assert "ghost" in plain.routes().values()
    arrays = jax.tree.map(np.ones_like, PARAMS)
    explanation = bk_jax.dp_value_and_grad(mlp_loss, pre_clip_scale=arrays).explain(PARAMS, BATCH)
    assert set(explanation.routes().values()) == {"leaf"}
    why = {row.path: row.why for row in explanation.rows}
    assert [why[path] for path, route in plain.routes().items() if route != "leaf"] == [
        BY_ELEMENT
    ] * 2


@pytest.mark.parametrize("scale", [1e-15, 3e-7, 0.3, 7e6, 1e15])
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_what_an_example_adds_is_within_the_clip_norm(scale, size):
    """Of any size and scale: the bound covers roundings and squares that are flushed to 0."""
    x = np.random.default_rng(0).normal(size=(1, 3, 5)).astype(np.float32) * np.float32(size)
    w = {"a": np.zeros((5, 7), np.float32), "b": np.zeros(7, np.float32)}

    def loss(w, x):
        return jnp.sum(jnp.sin(x @ w["a"] + w["b"]))

    norm = 1e-3
    grad_fn = bk_jax.clipped_value_and_grad(
        loss, l2_clip_norm=norm, pre_clip_scale={"a": scale, "b": 2 * scale}
    )
    _, grads = grad_fn(w, x)
    total = sum(np.sum(np.asarray(g, np.float64) ** 2) for g in jax.tree.leaves(grads))
    assert np.sqrt(total) <= norm * (1 + 1e-6)


def test_noise_does_not_depend_on_the_scale():
    """The sensitivity is that of what is scaled, and so is the noise."""
    key, x = bk_jax.random.key(1), np.zeros((2, 3), np.float32)
    w = np.zeros(3, np.float32)
    plain, scaled = (
        bk_jax.dp_value_and_grad(linear_loss, pre_clip_scale=scale)(w, x, key=key)[1]
        for scale in (None, 8.0)
    )
    assert_bits_equal(plain, scaled)


@pytest.mark.parametrize(
    ("error", "message", "scale", "options"),
    [
        (ValueError, r"pre_clip_scale must be finite and above 0, got 0\.0", 0.0, {}),
        (ValueError, "pre_clip_scale must be finite and above 0, got inf", np.inf, {}),
        (ValueError, "pre_clip_scale must be finite and above 0", np.float32([1, -1]), {}),
        (TypeError, "pre_clip_scale must hold numbers, got 'big'", "big", {}),
        (ValueError, "pre_clip_scale must be a scalar or a tree whose structure", {"no": 1.0}, {}),
        (
            ValueError,
            r"pre_clip_scale has an array of shape \(3,\) for a parameter of shape \(2,\); give one",
            np.ones(3),
            {},
        ),
    ],
)
def test_errors(error, message, scale, options):
    with pytest.raises(error, match=message):
        clipped(linear_loss, np.zeros(2, np.float32), np.ones((1, 2), np.float32),
                pre_clip_scale=scale, **options)  # fmt: skip
