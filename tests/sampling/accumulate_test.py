"""Accumulation: parts of a batch give what the batch gives, with one draw of noise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax import sampling
from bk_jax.sampling.batches import pad

KEY = bk_jax.random.key(11)


def linear_loss(params, x):
    """Integer gradients, which add up exactly in any order."""
    return jnp.mean(x @ params["w"]) + 3 * params["b"]


def start():
    return {"w": np.ones(3, np.float32), "b": np.float32(2), "n": np.int32(7)}


def rows(count):
    return np.random.default_rng(count).integers(-5, 6, (count, 3)).astype(np.float32)


def parts(examples, size):
    for begin in range(0, max(1, len(examples)), size):
        part = examples[begin : begin + size]
        yield pad(part, len(part), size)


def equal(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.parametrize("count", [0, 11])
@pytest.mark.parametrize("noise_multiplier", [0.0, 2.0])
def test_parts_give_the_value_the_sum_and_the_noise_of_the_whole(count, noise_multiplier):
    grad_fn = bk_jax.dp_value_and_grad(
        linear_loss, l2_clip_norm=64.0, noise_multiplier=noise_multiplier, normalize_by=4.0
    )
    key = KEY if noise_multiplier else None
    whole = jax.jit(grad_fn)(start(), rows(count), key=key)
    added = sampling.accumulated(grad_fn)(start(), parts(rows(count), 4), key=key)
    np.testing.assert_allclose(added[0], whole[0], rtol=1e-6)
    equal(added[1], whole[1])


def test_of_no_parts_comes_pure_noise():
    grad_fn = bk_jax.dp_value_and_grad(linear_loss, noise_multiplier=1.0)
    value, grads = sampling.accumulated(grad_fn)(start(), [], key=KEY)
    assert float(value) == 0
    equal(grads, jax.jit(grad_fn)(start(), rows(0), key=KEY)[1])
    assert np.asarray(grads["w"]).all()


def test_further_arguments_reach_the_loss():
    def shifted(params, x, *, frozen):
        return linear_loss(params, x) + frozen @ params["w"]

    grad_fn = bk_jax.dp_value_and_grad(shifted, l2_clip_norm=64.0)
    frozen = np.asarray([1, 2, 3], np.float32)
    _, added = sampling.accumulated(grad_fn)(start(), parts(rows(11), 4), key=KEY, frozen=frozen)
    _, whole = jax.jit(grad_fn)(start(), rows(11), key=KEY, frozen=frozen)
    equal(added, whole)
    with pytest.raises(TypeError, match="frozen"):
        sampling.accumulated(grad_fn)(start(), parts(rows(11), 4), key=KEY)


def test_each_example_is_clipped_by_itself():
    grad_fn = bk_jax.dp_value_and_grad(lambda w, x: jnp.sum(w * x), noise_multiplier=0.0)
    _, grad = sampling.accumulated(grad_fn)(np.float32(0), parts(np.full((10, 1), 9.0), 4))
    np.testing.assert_allclose(grad, 10.0, rtol=1e-5)


def test_sums_of_half_precision_parameters_are_kept_in_single():
    grad_fn = bk_jax.dp_value_and_grad(
        lambda w, x: jnp.sum(w * x), l2_clip_norm=1024.0, noise_multiplier=0.0, dtype=jnp.float32
    )
    examples = np.asarray([256, 1, 1, 1], jnp.bfloat16)  # in bfloat16, 256 + 1 is 256
    _, grad = sampling.accumulated(grad_fn)(jnp.bfloat16(0), parts(examples, 1))
    assert float(grad) == 259
    assert grad.dtype == jnp.float32


def test_gradients_have_the_dtype_of_the_parameters():
    grad_fn = bk_jax.dp_value_and_grad(lambda w, x: jnp.sum(w * x), noise_multiplier=0.0)
    _, grad = sampling.accumulated(grad_fn)(jnp.bfloat16(0), parts(np.ones(2, jnp.bfloat16), 1))
    assert grad.dtype == jnp.bfloat16


def test_parts_draw_different_dropout():
    def loss(w, x, key):
        return jnp.sum(w * x) * jax.random.bernoulli(key)

    grad_fn = bk_jax.dp_value_and_grad(loss, noise_multiplier=0.0, l2_clip_norm=4.0, prng_argnum=2)
    key = jax.random.key(0)
    batches = parts(np.ones((64, 1), np.float32), 1)
    _, grad = sampling.accumulated(grad_fn)(np.float32(0), batches, key)
    assert 10 < float(grad) < 54


def test_nothing_is_compiled_again_for_batches_of_other_sizes():
    traces = []

    def loss(params, x):
        traces.append(1)
        return linear_loss(params, x)

    grad_fn = bk_jax.dp_value_and_grad(loss, noise_multiplier=1.0)
    step = sampling.accumulated(grad_fn)
    step(start(), parts(rows(9), 4), key=KEY)
    first = len(traces)
    for count in (0, 1, 4, 5, 17):
        step(start(), parts(rows(count), 4), key=KEY)
    assert len(traces) == first


@pytest.mark.parametrize("clip_norm", [2.0, {"w": 2.0, "b": 100.0}])
def test_stats_of_parts_count_each_example_once(clip_norm):
    def loss(params, x):
        return jnp.sum(params["w"] * x) + params["b"]

    examples = np.asarray([1, 9, 1, 9, np.nan, 9, 1], np.float32)
    grad_fn = bk_jax.dp_value_and_grad(
        loss, l2_clip_norm=clip_norm, noise_multiplier=0.0, return_stats=True
    )
    params = {"w": np.float32(0), "b": np.float32(0)}
    _, _, stats = sampling.accumulated(grad_fn)(params, parts(examples, 3))
    whole = jax.jit(grad_fn)(params, examples)[2]
    assert int(stats.size) == 7
    assert int(stats.nonfinite_count) == int(whole.nonfinite_count) == 1
    assert float(stats.clipped_fraction) == float(whole.clipped_fraction)


def loss_with_aux(w, x):
    return jnp.sum(w * x), x


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        (linear_loss, {"argnums": (0,)}, "needs a grad_fn with argnums=0"),
        (linear_loss, {"argnums": 1, "batch_argnums": 0}, "needs a grad_fn with argnums=0"),
        (loss_with_aux, {"has_aux": True}, "without has_aux"),
    ],
)
def test_what_can_not_be_added_up_is_refused(loss, options, message):
    with pytest.raises(ValueError, match=message):
        sampling.accumulated(bk_jax.dp_value_and_grad(loss, **options))


def test_noise_needs_a_key():
    step = sampling.accumulated(bk_jax.dp_value_and_grad(linear_loss))
    with pytest.raises(ValueError, match="noise needs a key"):
        step(start(), parts(rows(1), 4))
