"""Noise that is the same twice, or that is none."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax import privacy

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
W = np.ones(3, np.float32)


def loss(w, x):
    return jnp.sum((x @ w) ** 2)


def under_jit(f):
    return jax.jit(f)(W)


def under_vmap(f):
    return jax.vmap(f)(X)


def under_grad(f):
    return jax.grad(f)(W)


def under_scan(f):
    return jax.lax.scan(lambda c, _: (c, f(c)), W, None, length=2)


@pytest.mark.parametrize("trace", [under_jit, under_vmap, under_grad, under_scan, jax.eval_shape])
def test_keys_are_not_made_under_a_trace(trace):
    def step(w):
        return jnp.sum(jax.random.normal(bk_jax.random.key(), ()) * w)

    with pytest.raises(
        RuntimeError, match=r"bk_jax.random.key\(\) without a seed.*Make the key outside"
    ):
        trace(step) if trace is not jax.eval_shape else jax.eval_shape(step, W)


def test_a_ledger_hands_out_no_step_under_a_trace(tmp_path):
    plan = privacy.PrivacyPlan(
        num_examples=100, batch_size=10, steps=5, delta=1e-3, noise_multiplier=2.0
    )
    with privacy.open_ledger(tmp_path / "run.ledger", plan) as ledger:
        with pytest.raises(
            RuntimeError, match=r"Ledger.take\(\) was called while.*Make the key outside"
        ):
            jax.jit(lambda: jax.random.key_data(ledger.take().noise_key))()
        assert ledger.steps == 0
        assert ledger.take().number == 0


def test_a_seed_says_that_repetition_is_wanted():
    assert np.isfinite(jax.jit(lambda: jax.random.normal(bk_jax.random.key(3), ()))())


def test_keys_differ_outside():
    one, two = bk_jax.random.key(), bk_jax.random.key()
    assert not np.array_equal(jax.random.key_data(one), jax.random.key_data(two))


# --- one key for several models ---


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit inside"])
def test_models_do_not_share_a_key(wrap):
    grad_fn = wrap(bk_jax.dp_value_and_grad(loss))

    def train(w, key):
        return grad_fn(w, X, key=key)

    models = np.stack([W, 2 * W, 3 * W])
    key = bk_jax.random.key()
    with pytest.raises(ValueError, match=r"one key between 3 models.*jax.random.split\(key, 3\)"):
        jax.vmap(train, in_axes=(0, None))(models, key)
    _, grads = jax.vmap(train)(models, jax.random.split(key, 3))
    clean = jax.vmap(lambda w: bk_jax.clipped_value_and_grad(loss)(w, X)[1])(models)
    noise = np.asarray(grads - clean)
    assert np.unique(noise.round(4), axis=0).shape == noise.shape


def test_data_of_several_owners_do_not_share_a_key_either():
    grad_fn = bk_jax.dp_value_and_grad(loss)
    with pytest.raises(ValueError, match="one key between 2 models"):
        jax.vmap(lambda x, key: grad_fn(W, x, key=key), (0, None))(
            np.stack([X, X]), jax.random.key(0)
        )


def test_many_keys_for_one_model_are_an_audit():
    grad_fn = bk_jax.dp_value_and_grad(loss)
    keys = jax.random.split(jax.random.key(0), 5)
    _, grads = jax.vmap(lambda key: grad_fn(W, X, key=key))(keys)
    assert np.unique(np.asarray(grads), axis=0).shape == (5, 3)


# --- a loss whose own parameter is shadowed ---


def test_a_loss_with_a_default_key_is_refused():
    def dropout_loss(w, x, key=None):
        return loss(w, x)

    with pytest.raises(ValueError, match=r"parameter 'key'.*never reach the loss.*prng_argnum=2"):
        bk_jax.dp_value_and_grad(dropout_loss)
    bk_jax.dp_value_and_grad(dropout_loss, prng_argnum=2)


@pytest.mark.parametrize("name", ["key", "is_padding_example"])
def test_keyword_only_parameters_are_refused(name):
    namespace = {}
    exec(f"def named(w, x, *, {name}): return 0.0", namespace)
    with pytest.raises(ValueError, match=f"parameter '{name}'"):
        bk_jax.dp_value_and_grad(namespace["named"])


def test_a_key_by_position_reaches_the_loss():
    def dropout_loss(w, x, key):
        return loss(w, x) * jax.random.bernoulli(key)

    bk_jax.clipped_value_and_grad(dropout_loss)(W, X, jax.random.key(0))
    bk_jax.clipped_value_and_grad(dropout_loss, prng_argnum=2)(W, X, jax.random.key(0))


# --- noise that is none ---


@pytest.mark.parametrize("sigma", [1e-300, 1e-9, 5.9e-8])
def test_noise_that_rounds_away_is_refused(sigma):
    with pytest.raises(ValueError, match="too small to add anything"):
        bk_jax.dp_value_and_grad(loss, noise_multiplier=sigma)
    bk_jax.dp_value_and_grad(loss, noise_multiplier=6e-8)


def test_noise_below_the_numbers_of_float32_is_refused():
    with pytest.raises(ValueError, match="smallest number of float32"):
        bk_jax.dp_value_and_grad(loss, l2_clip_norm=1e-39)
    bk_jax.dp_value_and_grad(loss, l2_clip_norm=0.0)  # documented: zero gradient, zero noise


@pytest.mark.parametrize("dtype", [jnp.int32, "bool", np.uint8])
def test_a_gradient_of_whole_numbers_is_refused(dtype):
    with pytest.raises(TypeError, match="must be a floating-point type"):
        bk_jax.dp_value_and_grad(loss, dtype=dtype)
