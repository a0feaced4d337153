"""A limit of memory: how many examples are taken at a time, by what XLA says of compiled steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax import fitting

LAYERS = [jnp.eye(32) * 0.5, jnp.eye(32)]
BATCH = jnp.arange(16 * 20 * 32, dtype=jnp.float32).reshape(16, 20, 32) % 7


def loss(params, x):
    for kernel in params:
        x = jnp.tanh(x @ kernel)
    return jnp.mean(x**2)


def memory(step, *args):
    return jax.jit(step).lower(*args).compile().memory_analysis().temp_size_in_bytes


def chosen(grad_fn):
    jax.jit(grad_fn)(LAYERS, BATCH)
    (size,) = grad_fn.fitting.values()
    return size


@pytest.mark.parametrize("share", [2.0, 0.5, 0.3])
def test_the_step_stays_within_a_share_of_the_plain_one_and_the_next_size_does_not(share):
    size = chosen(bk_jax.clipped_value_and_grad(loss, memory_limit=share))
    allowed = share * memory(jax.value_and_grad(loss), LAYERS, BATCH)

    def needed(size):
        fixed = bk_jax.clipped_value_and_grad(loss, microbatch_size=size)
        return memory(fixed.clipped_sums, LAYERS, BATCH)

    assert needed(size) <= allowed
    assert size == 16 or needed(2 * size) > allowed


def test_bytes_are_bytes():
    plain = memory(jax.value_and_grad(loss), LAYERS, BATCH)
    sizes = [
        chosen(bk_jax.clipped_value_and_grad(loss, memory_limit=limit))
        for limit in (0.4, int(0.4 * plain))
    ]
    assert sizes[0] == sizes[1] < 16


def test_the_result_is_that_of_the_whole_batch():
    value, grads = jax.jit(bk_jax.clipped_value_and_grad(loss, memory_limit=0.4))(LAYERS, BATCH)
    whole, expected = jax.jit(bk_jax.clipped_value_and_grad(loss))(LAYERS, BATCH)
    np.testing.assert_allclose(value, whole, rtol=1e-6)
    for ours, theirs in zip(grads, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_auto_without_a_limit_takes_what_the_device_has(monkeypatch):
    assert chosen(bk_jax.clipped_value_and_grad(loss, microbatch_size="auto")) == 16
    monkeypatch.setattr(fitting, "_device_memory", lambda: 60_000)
    assert chosen(bk_jax.clipped_value_and_grad(loss, microbatch_size="auto")) < 16


def test_shapes_are_tried_once():
    grad_fn = bk_jax.clipped_value_and_grad(loss, memory_limit=0.4)
    compiled = []
    original = fitting._temporary
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_temporary", lambda *args: compiled.append(1) or original(*args))
        jax.make_jaxpr(grad_fn)(LAYERS, BATCH)
        tried = len(compiled)
        jax.make_jaxpr(grad_fn)(LAYERS, BATCH)
    assert len(compiled) == tried > 1


def test_a_bare_example_and_keyword_arguments():
    def scaled(params, x, *, scale):
        return loss(params, x) * scale

    grad_fn = bk_jax.clipped_value_and_grad(scaled, keep_batch_dim=False, memory_limit=0.5)
    jax.jit(grad_fn)(LAYERS, BATCH, scale=jnp.float32(2))
    assert len(grad_fn.fitting) == 1


def test_halves():
    assert fitting._halves(12) == [12, 6, 3, 2, 1]
    assert fitting._halves(1) == fitting._halves(0) == [1]


def test_what_does_not_fit():
    grad_fn = bk_jax.clipped_value_and_grad(loss, memory_limit=1000)
    with pytest.raises(ValueError, match=r"one example at a time takes .* MB .*allows 0\.0 MB"):
        jax.jit(grad_fn)(LAYERS, BATCH)


@pytest.mark.parametrize("limit", [0, -1, "half", True])
def test_what_is_no_limit(limit):
    with pytest.raises(ValueError, match="memory_limit must be a positive number"):
        bk_jax.clipped_value_and_grad(loss, memory_limit=limit)


def test_several_devices(monkeypatch):
    monkeypatch.setattr(fitting, "many_devices", lambda: True)
    with pytest.raises(ValueError, match="go by the memory of one device"):
        bk_jax.clipped_value_and_grad(loss, memory_limit=0.5)(LAYERS, BATCH)
