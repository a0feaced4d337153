"""Optimizers are optax's: private training without clipping and noise is plain training."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bk_jax
from bk_jax import privacy

OPTIMIZERS = {
    "sgd": optax.sgd(0.5, momentum=0.5),
    "adam": optax.adam(0.1),
    "lamb": optax.lamb(0.1, weight_decay=0.01),
}
SIZE = 8
NOISELESS = {"l2_clip_norm": np.inf, "noise_multiplier": 0.0, "normalize_by": float(SIZE)}


def linear_loss(params, batch):
    """Its gradients are sums of small integers, which are exact in any order."""
    return jnp.mean(batch["x"] @ params["w"]) + 2 * params["b"] * jnp.mean(batch["y"])


def network_loss(params, batch):
    hidden = jnp.tanh(batch["x"] @ params["w"][:, None] + params["b"])
    return jnp.mean((hidden[:, 0] - batch["y"]) ** 2)


def start():
    return {"w": np.linspace(-1, 1, 5, dtype=np.float32), "b": np.float32(0.5)}


def batches(count=4):
    rng = np.random.default_rng(0)
    for _ in range(count):
        x = rng.integers(-4, 5, (SIZE, 5)).astype(np.float32)
        yield {"x": x, "y": rng.integers(-4, 5, SIZE).astype(np.float32)}


def train(value_and_grad, optimizer, steps=4):
    params, state = start(), optimizer.init(start())

    @jax.jit
    def apply(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for batch in batches(steps):
        params, state = apply(params, state, value_and_grad(params, batch)[1])
    return jax.tree.map(np.asarray, params)


PRIVATE = {
    loss: jax.jit(bk_jax.dp_value_and_grad(loss, **NOISELESS))
    for loss in (linear_loss, network_loss)
}
PLAIN = {loss: jax.jit(jax.value_and_grad(loss)) for loss in (linear_loss, network_loss)}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_exact_gradients_give_the_same_parameters_bit_for_bit(name):
    private = train(PRIVATE[linear_loss], OPTIMIZERS[name])
    plain = train(PLAIN[linear_loss], OPTIMIZERS[name])
    assert not np.array_equal(plain["w"], start()["w"])
    jax.tree.map(np.testing.assert_array_equal, private, plain)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_network_gives_the_same_parameters_to_rounding(name):
    private = train(PRIVATE[network_loss], OPTIMIZERS[name])
    plain = train(PLAIN[network_loss], OPTIMIZERS[name])
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(close, private, plain)


# --- noise as a gradient transformation -----------------------------------------------------------


def test_a_chain_with_the_privatizer_is_dp_value_and_grad_bit_for_bit():
    key, sigma = bk_jax.random.key(5), 1.5
    clipped = bk_jax.clipped_value_and_grad(linear_loss, l2_clip_norm=2.0)
    chain = optax.chain(
        privacy.gaussian_privatizer(sigma * clipped.sensitivity(), key),
        optax.scale(1 / SIZE),
        optax.sgd(0.25),
    )
    private = bk_jax.dp_value_and_grad(
        linear_loss, l2_clip_norm=2.0, noise_multiplier=sigma, normalize_by=SIZE
    )

    @jax.jit
    def chained(params, state, batch):
        updates, state = chain.update(clipped(params, batch)[1], state, params)
        return optax.apply_updates(params, updates), state

    @jax.jit
    def direct(params, key, batch):
        key, step_key = jax.random.split(key)
        grads = private(params, batch, key=step_key)[1]
        return jax.tree.map(lambda p, g: p + -0.25 * g, params, grads), key

    params, expected, state = start(), start(), chain.init(start())
    for batch in batches(2):
        params, state = chained(params, state, batch)
        expected, key = direct(expected, key, batch)
    jax.tree.map(np.testing.assert_array_equal, params, expected)
    assert int(state[0].steps) == 2


def test_no_two_updates_share_noise_and_a_saved_state_goes_on():
    privatizer = privacy.gaussian_privatizer(1.0, bk_jax.random.key(1))
    zeros = {"w": jnp.zeros(64), "n": jnp.zeros(3, jnp.int32)}
    update = jax.jit(privatizer.update)
    state, noises, states = privatizer.init(zeros), [], []
    for _ in range(3):
        noise, state = update(zeros, state)
        noises.append(np.asarray(noise["w"]))
        states.append(state)
        assert not np.asarray(noise["n"]).any()
    assert len(np.unique(np.concatenate(noises))) == 3 * 64
    assert len({tuple(np.asarray(jax.random.key_data(s.key))) for s in states}) == 3
    np.testing.assert_array_equal(update(zeros, states[1])[0]["w"], noises[2])


@pytest.mark.parametrize("stddev", [0.0, -1.0, np.nan, np.inf])
def test_noise_without_a_size_is_refused(stddev):
    with pytest.raises(ValueError, match="stddev must be finite and above 0"):
        privacy.gaussian_privatizer(stddev, bk_jax.random.key(0))


# --- a privatizer of one's own --------------------------------------------------------------------


def correlated_privatizer(stddev, key, share):
    """Takes back a share of the last step's noise: the simplest banded matrix factorization."""

    def fresh(tree, step):
        step_key = jax.random.fold_in(key, step)
        leaves, treedef = jax.tree.flatten(tree)
        keys = jax.random.split(step_key, len(leaves))
        noise = [stddev * jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
        return jax.tree.unflatten(treedef, noise)

    def init(params):
        return jnp.int32(0), jax.tree.map(jnp.zeros_like, params)

    def update(sums, state, params=None):
        step, last = state
        noise = fresh(sums, step)
        noisy = jax.tree.map(lambda s, new, old: s + new - share * old, sums, noise, last)
        return noisy, (step + 1, noise)

    return optax.GradientTransformation(init, update)


def test_a_correlated_privatizer_takes_the_place_of_ours():
    clipped = bk_jax.clipped_value_and_grad(linear_loss, l2_clip_norm=1e3)
    stddev, key = 0.01 * clipped.sensitivity(), jax.random.key(2)
    chain = optax.chain(correlated_privatizer(stddev, key, share=1.0), optax.sgd(1.0))
    trained = train(jax.jit(clipped), chain, steps=2)["w"]

    noiseless = start()["w"] - sum(batch["x"].sum(axis=0) for batch in batches(2))
    zeros = jax.tree.map(np.zeros_like, start())
    last = jax.jit(correlated_privatizer(stddev, key, share=0.0).update)
    noise, _ = last(
        zeros, (np.int32(1), zeros)
    )  # the first step's noise was taken back by the second
    np.testing.assert_allclose(trained - noiseless, -noise["w"], rtol=1e-4, atol=1e-4)
    assert np.abs(noise["w"]).min() > 0.1
