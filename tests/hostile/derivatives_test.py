"""Derivatives of a private gradient: an error that says why, whoever asks and from where."""

import collections
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax import peft

W = {"bias": np.zeros(4, np.float32), "kernel": np.ones((3, 4), np.float32)}
X = np.arange(30, dtype=np.float32).reshape(2, 5, 3)
KEY = jax.random.key(0)
EXPECTED = "a private gradient has no derivative"


def loss_fn(w, x):
    return jnp.mean(jnp.tanh(x @ w["kernel"] + w["bias"]))


noisy = bk_jax.dp_value_and_grad(loss_fn)
clipped = bk_jax.clipped_value_and_grad(loss_fn)


def value(w):
    return noisy(w, X, key=KEY)[0]


def squared_norm(w):
    return sum(jnp.sum(g**2) for g in jax.tree_util.tree_leaves(clipped(w, X)[1]))


def through_kwargs(frozen):
    trainable, _ = peft.partition(W, "bias")
    loss = peft.with_frozen(loss_fn)
    return bk_jax.clipped_value_and_grad(loss)(trainable, X, frozen=frozen)[0]


def through_another_argument(scale):
    grad_fn = bk_jax.clipped_value_and_grad(lambda w, x, scale: scale * loss_fn(w, x))
    return grad_fn(W, X, scale)[0]


def through_the_clip_norm(norm):
    grads = bk_jax.clipped_value_and_grad(loss_fn, l2_clip_norm={"bias": norm, "kernel": 1.0})
    return jnp.sum(grads(W, X)[1]["bias"])


def through_the_noise(multiplier):
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, noise_multiplier=multiplier)
    return jnp.sum(grad_fn(W, X, key=KEY)[1]["bias"])


DERIVATIVES = {
    "of the value": lambda: jax.grad(value)(W),
    "of a norm of gradients": lambda: jax.grad(squared_norm)(W),
    "of a jitted one": lambda: jax.grad(jax.jit(squared_norm))(W),
    "inside jit": lambda: jax.jit(jax.grad(squared_norm))(W),
    "forwards": lambda: jax.jvp(squared_norm, (W,), (W,)),
    "linearised": lambda: jax.linearize(squared_norm, W),
    "a Hessian": lambda: jax.hessian(value)(W),
    "with remat": lambda: jax.grad(jax.checkpoint(squared_norm))(W),
    "in a scan": lambda: jax.grad(
        lambda w: jax.lax.scan(lambda c, _: (c + value(w), None), 0.0, None, length=2)[0]
    )(W),
    "by the data": lambda: jax.grad(lambda x: clipped(W, x)[0])(X),
    "by frozen parameters": lambda: jax.grad(through_kwargs)(peft.partition(W, "bias")[1]),
    "by another argument": lambda: jax.grad(through_another_argument)(1.0),
    "by the clip norm": lambda: jax.grad(through_the_clip_norm)(1.0),
    "by the noise": lambda: jax.grad(through_the_noise)(1.0),
    "a private gradient of one": lambda: bk_jax.clipped_value_and_grad(
        lambda w, x: clipped(w, x)[0]
    )(W, X[:, None]),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_there_is_no_derivative(name, implementation):
    # Inside jit and scan JAX looks for leaks while the error is on its way, and takes the frames that
    # the error holds for one.
    with jax.check_tracer_leaks(False), pytest.raises(TypeError, match=EXPECTED):
        DERIVATIVES[name]()


def test_the_message_has_ways_out():
    with pytest.raises(TypeError, match=r"jax\.lax\.stop_gradient") as info:
        jax.grad(value)(W)
    assert "inside of loss_fn" in str(info.value)


def test_stopped_gradients_are_a_way_out():
    def both(w):
        still = jax.tree_util.tree_map(jax.lax.stop_gradient, w)
        return clipped(still, X)[0] + jnp.sum(w["bias"])

    np.testing.assert_array_equal(jax.jit(jax.grad(both))(W)["bias"], np.ones(4))


def test_gradients_inside_of_the_loss_are_a_way_out():
    def penalised(w, x):
        return jnp.sum(jax.grad(loss_fn)(w, x)["bias"] ** 2)

    value, grads = jax.jit(bk_jax.clipped_value_and_grad(penalised, l2_clip_norm=100.0))(W, X)
    each = jax.jit(jax.vmap(jax.value_and_grad(penalised), (None, 0)))(W, X[:, None])
    np.testing.assert_allclose(value, jnp.mean(each[0]), rtol=1e-5)
    np.testing.assert_allclose(grads["bias"], jnp.sum(each[1]["bias"], 0), rtol=1e-4, atol=1e-7)


def test_a_factor_of_the_result_has_a_derivative():
    step = jax.jit(jax.value_and_grad(lambda s: s * clipped(W, X)[0]))
    product, factor = step(2.0)
    assert product == 2 * factor


def test_what_is_no_number_goes_through():
    """Whole numbers, keys and flags have no derivative to refuse."""

    def loss(w, x, count, key, flag):
        scale = count if flag else 0
        return loss_fn(w, x) * scale + 0 * jax.random.normal(key)

    grad_fn = bk_jax.clipped_value_and_grad(loss)
    step = jax.jit(lambda w: grad_fn(w, X, jnp.int32(2), KEY, True)[0])
    np.testing.assert_allclose(step(W), 2 * jax.jit(clipped)(W, X)[0], rtol=1e-6)


def test_no_operation_is_added(monkeypatch):
    def operations():
        grad_fn = bk_jax.clipped_value_and_grad(loss_fn)
        text = jax.jit(grad_fn).lower(W, X).compile().as_text()
        return collections.Counter(re.findall(r" ([a-z][a-z0-9-]*)\(", text))

    guarded = operations()
    monkeypatch.setattr("bk_jax.grad_fn.refuse_derivatives", lambda tree: tree)
    assert guarded == operations()
