"""The transform under JAX's own: jit, ahead-of-time compilation, scan, vmap, abstract values."""

import functools
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.models import mlp, mlp_batch, mlp_loss
from support.tolerance import assert_bits_equal

import bk_jax

PARAMS, BATCH = mlp(), mlp_batch(4)


def assert_same(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert_bits_equal(a, b)


@pytest.fixture(scope="module")
def compiled():
    """The plain compiled step and its result."""
    step = jax.jit(bk_jax.clipped_value_and_grad(mlp_loss, return_stats=True))
    return step, step(PARAMS, BATCH)


# --- what comes back ---


def test_structure_of_the_result():
    def loss(params, batch):
        return mlp_loss(params, batch), {"x": batch[0]}

    def shapes(**options):
        grad_fn = bk_jax.clipped_value_and_grad(loss, has_aux=True, **options)
        return jax.eval_shape(grad_fn, PARAMS, BATCH)

    (value, aux), grads = shapes()
    assert value.shape == ()
    assert aux["x"].shape == (4, 1, 5)
    assert jax.tree.structure(grads) == jax.tree.structure(PARAMS)

    (_, aux), grads, stats = shapes(return_stats=True, argnums=(0,))
    assert jax.tree.structure(grads) == jax.tree.structure((PARAMS,))
    assert isinstance(stats, bk_jax.Stats)
    assert stats._fields == (
        "losses", "norms", "clip_factors", "clipped_fraction", "nonfinite_count"
    )  # fmt: skip
    assert [x.shape for x in stats] == [(4,), (4,), (4,), (), ()]


def test_stats_of_groups_have_one_column_each():
    groups = {"w1": 1.0, "b1": 1.0, "w2": 2.0, "b2": 3.0}
    grad_fn = bk_jax.clipped_value_and_grad(mlp_loss, l2_clip_norm=groups, return_stats=True)
    _, _, stats = jax.eval_shape(grad_fn, PARAMS, BATCH)
    assert stats.norms.shape == stats.clip_factors.shape == (4, 4)


def test_clipped_fraction_by_mental_arithmetic():
    """Norms 0.5, 5 and 13 with R = 1: two of three, and one of two without the last."""
    x = np.float32([[0.3, 0.4], [3, 4], [5, 12]])
    grad_fn = jax.jit(bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(x * w), return_stats=True))
    stats = grad_fn(np.ones(2, np.float32), x)[-1]
    assert stats.clipped_fraction == np.float32(2 / 3)
    padding = np.asarray([False, False, True])
    stats = grad_fn(np.ones(2, np.float32), x, is_padding_example=padding)[-1]
    assert stats.clipped_fraction == np.float32(1 / 2)


def test_the_wrapper_keeps_the_name_of_the_loss():
    grad_fn = bk_jax.dp_value_and_grad(mlp_loss)
    assert grad_fn.__name__ == "mlp_loss"
    assert grad_fn.__wrapped__ is mlp_loss
    partial = bk_jax.dp_value_and_grad(functools.partial(mlp_loss))
    assert callable(partial)


# --- transformations ---


def test_ahead_of_time_compilation(compiled):
    grad_fn = bk_jax.clipped_value_and_grad(mlp_loss, return_stats=True)
    lowered = jax.jit(grad_fn).lower(*jax.eval_shape(lambda: (PARAMS, BATCH)))
    assert_same(lowered.compile()(PARAMS, BATCH), compiled[1])


def test_training_in_a_scan():
    """Private steps in a loop, one key per step: the same as one step after the other."""

    def loss(w, x):
        return jnp.sum(jnp.square(x @ w - 1))

    grad_fn = bk_jax.dp_value_and_grad(loss, noise_multiplier=0.1)

    def step(w, inputs):
        x, key = inputs
        value, grad = grad_fn(w, x, key=key)
        return w - 0.1 * grad, value

    w, x = np.ones((3, 2), np.float32), mlp_batch(8)[0][:, :3].reshape(2, 4, 3)
    keys = jax.random.split(jax.random.key(0), 2)
    scanned, values = jax.jit(lambda w: jax.lax.scan(step, w, (x, keys)))(w)
    one = jax.jit(step)
    unrolled, first = one(w, (x[0], keys[0]))
    unrolled, second = one(unrolled, (x[1], keys[1]))
    np.testing.assert_allclose(scanned, unrolled, rtol=1e-5)
    np.testing.assert_allclose(values, [first, second], rtol=1e-5)


def test_vmap_over_parameters():
    grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(jnp.square(x @ w)))
    w, x = np.ones((3, 2), np.float32), mlp_batch(4)[0][:, :3]
    _, mapped = jax.jit(jax.vmap(grad_fn, in_axes=(0, None)))(np.stack([w, 2 * w]), x)
    for i in range(2):
        np.testing.assert_allclose(mapped[i], jax.jit(grad_fn)((i + 1) * w, x)[1], rtol=1e-5)


def test_a_traced_clip_norm(compiled):
    """One program for all clip norms, equal to the one with the number built in."""

    @jax.jit
    def step(norm, params, batch):
        grad_fn = bk_jax.clipped_value_and_grad(mlp_loss, l2_clip_norm=norm, return_stats=True)
        return grad_fn(params, batch)

    assert_same(step(np.float32(1), PARAMS, BATCH), compiled[1])
    _, grads, stats = step(np.float32(0), PARAMS, BATCH)
    assert not any(np.any(g) for g in grads.values())
    assert stats.clip_factors.tolist() == [0.0] * 4
    for refused in (-1.0, np.nan):  # cannot be an error here; must not be a leak either
        _, grads, _ = step(np.float32(refused), PARAMS, BATCH)
        assert not any(np.any(g) for g in grads.values())
    assert step._cache_size() == 1


def test_traced_clip_norms_of_groups():
    @jax.jit
    def step(norms):
        grad_fn = bk_jax.clipped_value_and_grad(mlp_loss, l2_clip_norm=norms, return_stats=True)
        return grad_fn(PARAMS, BATCH)[-1].clip_factors

    norms = {"w1": 0.0, "b1": 1.0, "w2": 1.0, "b2": 1e6}
    factors = np.asarray(step({k: np.float32(v) for k, v in norms.items()}))
    columns = dict(zip(sorted(norms), factors.T, strict=True))
    assert columns["w1"].tolist() == [0.0] * 4
    assert columns["b2"].tolist() == [1.0] * 4


# --- once is enough ---


def test_a_second_call_compiles_nothing(compiled, caplog):
    step, _ = compiled
    size = step._cache_size()
    fresh = tuple(2 * a for a in BATCH)
    with jax.log_compiles(), caplog.at_level(logging.DEBUG, logger="jax"):
        jax.block_until_ready(step(jax.tree.map(lambda p: 0.5 * p, PARAMS), fresh))
    assert step._cache_size() == size
    assert not [r for r in caplog.records if "XLA compilation" in r.getMessage()]


def test_the_compilation_log_is_seen(caplog):
    """The check above is worth something: a first call is in the log."""
    with jax.log_compiles(), caplog.at_level(logging.DEBUG, logger="jax"):
        jax.block_until_ready(jax.jit(lambda x: x + 1)(np.float32(1)))
    assert [r for r in caplog.records if "XLA compilation" in r.getMessage()]


@pytest.mark.parametrize("method", ["auto", "ghost_clip", "tf_privacy"])
@pytest.mark.parametrize("microbatch_size", [None, 2])
def test_the_loss_is_traced_once(method, microbatch_size):
    calls = []

    def loss(params, batch):
        calls.append(1)
        return mlp_loss(params, batch)

    grad_fn = bk_jax.dp_value_and_grad(loss, method=method, microbatch_size=microbatch_size)
    jax.jit(grad_fn).trace(PARAMS, BATCH, key=jax.random.key(0))
    assert len(calls) == 1
