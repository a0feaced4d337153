"""Losses in half precision: norms, scales of the loss, and what an optimizer keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.models import mlp, mlp_batch, mlp_loss

import bk_jax
from bk_jax.planning.methods import METHODS

HALVES = pytest.mark.parametrize("half", [jnp.bfloat16, jnp.float16], ids=["bfloat16", "float16"])
W = np.zeros((2, 3), np.float32)
X = np.float32([[[1, 2]], [[3, 0]]])
SMALL = 2.0**-26  # float16 has nothing between 0 and 2^-24


def faint_loss(w, x):
    """In float16; the gradient with respect to `w` is `SMALL x`, three times over."""
    logits = x.astype(jnp.float16) @ w.astype(jnp.float16)
    return jnp.sum(logits.astype(jnp.float32)) * SMALL


def clipped(loss, params, batch, **options):
    grad_fn = bk_jax.clipped_value_and_grad(loss, return_stats=True, **options)
    return jax.jit(grad_fn)(params, batch)


def test_without_a_scale_small_gradients_are_lost():
    _, grads, _ = clipped(faint_loss, W, X, l2_clip_norm=1.0)
    np.testing.assert_array_equal(grads, 0)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_scale_is_undone_before_the_norm_is_taken(method):
    """Gradients (1, 2) and (3, 0), three columns each, times 2^-26: nothing is rounded."""
    value, grads, stats = clipped(
        faint_loss, W, X, l2_clip_norm=1.0, loss_scale=1024.0, method=method
    )
    np.testing.assert_array_equal(grads, SMALL * np.float32([[4] * 3, [2] * 3]))
    np.testing.assert_allclose(stats.norms, SMALL * np.sqrt([15, 27]), rtol=1e-4)
    np.testing.assert_array_equal(stats.clip_factors, 1)
    assert value == 0


def test_what_is_clipped_is_the_gradient_itself():
    options = {"l2_clip_norm": SMALL, "loss_scale": 2.0**12}
    _, grads, stats = clipped(faint_loss, W, X, **options)
    np.testing.assert_allclose(stats.clip_factors, 1 / np.sqrt([15, 27]), rtol=1e-2)
    factors = np.asarray(stats.clip_factors, np.float64)
    rows = factors[0] * np.float64([1, 2]) + factors[1] * np.float64([3, 0])
    np.testing.assert_allclose(grads, SMALL * np.repeat(rows[:, None], 3, axis=1), rtol=1e-5)


def test_a_scale_that_is_too_large_leaves_examples_out():
    """Infinite in float16: such an example contributes exactly 0 and is counted."""
    _, grads, stats = clipped(faint_loss, W, X, loss_scale=2.0**43)
    np.testing.assert_array_equal(grads, 0)
    assert stats.nonfinite_count == 2


def test_both_scales_and_microbatches():
    both = {"loss_scale": 1024.0, "pre_clip_scale": 0.5, "microbatch_size": 1}
    _, grads, _ = clipped(faint_loss, W, X, l2_clip_norm=1.0, **both)
    np.testing.assert_array_equal(grads, SMALL / 2 * np.float32([[4] * 3, [2] * 3]))


def in_half(half):
    def loss(params, batch):
        cast = lambda x: x.astype(half) if jnp.issubdtype(x.dtype, jnp.floating) else x  # noqa: E731
        return mlp_loss(*jax.tree.map(cast, (params, batch))).astype(jnp.float32)

    return loss


@HALVES
def test_a_model_in_half_precision(half):
    """Of float32 parameters: norms and sums are those of float32, to the precision of the model."""
    params, batch = mlp(), mlp_batch(6)
    _, right, right_stats = clipped(mlp_loss, params, batch)
    _, grads, stats = clipped(in_half(half), params, batch, loss_scale=128.0)
    rounding = 40 * float(jnp.finfo(half).eps)
    np.testing.assert_allclose(stats.norms, right_stats.norms, rtol=rounding)
    scale = max(np.abs(g).max() for g in jax.tree.leaves(right))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=rounding * scale), grads, right)


@HALVES
def test_an_optimizer_of_float32_parameters_keeps_float32(half):
    params, batch = mlp(), mlp_batch(6)
    optimizer = optax.adam(1e-2)
    grad_fn = bk_jax.dp_value_and_grad(in_half(half), loss_scale=128.0)

    @jax.jit
    def step(params, state, key):
        _, grads = grad_fn(params, batch, key=key)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params, state = step(params, optimizer.init(params), bk_jax.random.key(0))
    kept = {leaf.dtype for leaf in jax.tree.leaves((params, state[0].mu, state[0].nu))}
    assert kept == {jnp.dtype(jnp.float32)}


@HALVES
def test_sums_of_half_precision_parameters_are_float32_until_the_end(half):
    """With `dtype`, an optimizer gets them as they are."""
    params = jax.tree.map(lambda x: jnp.asarray(x, half), mlp())
    grad_fn = bk_jax.dp_value_and_grad(mlp_loss, dtype=jnp.float32)
    batch = jax.tree.map(
        lambda x: jnp.asarray(x, half) if x.dtype == np.float32 else x, mlp_batch(6)
    )
    sums = grad_fn.clipped_sums(params, batch).sums
    grads = grad_fn.release(sums, bk_jax.random.key(0), like=params)
    for tree in (sums, grads):
        assert {leaf.dtype for leaf in jax.tree.leaves(tree)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize(
    ("error", "message", "scale"),
    [
        (ValueError, r"loss_scale must be a power of two, such as 1024\.0; got 1000\.0", 1000.0),
        (ValueError, r"loss_scale must be a power of two, such as 1024\.0; got 0\.0", 0.0),
        (ValueError, "loss_scale must be a power of two.*got inf", np.inf),
        (ValueError, r"loss_scale must be one number, got an array of \(2,\)", np.ones(2)),
        (TypeError, "loss_scale must be a number, got 'big'", "big"),
    ],
)
def test_errors(error, message, scale):
    with pytest.raises(error, match=message):
        bk_jax.dp_value_and_grad(faint_loss, loss_scale=scale)
