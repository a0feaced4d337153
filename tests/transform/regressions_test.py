"""Bugs that there were; each test failed once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.oracle import check_against_oracle

METHODS = ["auto", "bk", "fast_grad_clip"]


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


W, X = normal(0, 4, 4), normal(1, 5, 2, 4)
IDS = np.int32([[0, 1, 1], [3, 2, 1], [2, 2, 2]])

LOSSES = {
    # The norm was that of two separate weights: too small by up to sqrt(2).
    "joined with itself": (
        lambda w, x: jnp.sum(jnp.tanh(x @ jnp.concatenate([w, w], 1))), W, X,
    ),
    "overlapping slices joined": (
        lambda w, x: jnp.sum(jnp.tanh(x @ jnp.concatenate([w[:, :3], w[:, 1:]], 1))), W, X,
    ),
    # No equation uses such a parameter, so nobody saw it.
    "the loss itself": (lambda w, x: w[0], normal(0, 1), X),
    "the loss itself, in a jit": (
        lambda w, x: jax.jit(lambda w: w.reshape(()))(w), normal(0, 1, 1), X,
    ),
    # The reshape was followed without its order.
    "column-major": (
        lambda w, x: jnp.sum(jnp.tanh(x @ jnp.reshape(w, (4, 6), order="F"))), normal(0, 3, 8), X,
    ),
    # Ids were compared in a type in which they wrapped around.
    "large ids": (
        lambda w, i: jnp.sum(jnp.tanh(w.at[i].get(mode="fill", fill_value=0.0))),
        W, np.int64([[1, 2**32 + 1], [2, -1], [3, 3]]),
    ),
    "unsigned ids": (
        lambda w, i: jnp.sum(jnp.tanh(jnp.take(w, i, axis=0, mode="clip"))),
        W, np.uint32([[1, 2**32 - 1], [2, 7], [3, 3]]),
    ),
    # The forms of both lookups are equal; the norm was 1.7 times too small.
    "looked up along both axes": (
        lambda w, i: jnp.sum(jnp.tanh(w[i])) + jnp.sum(jnp.cos(w[:, i])), W, IDS,
    ),
    "tied and looked up along the other axis": (
        lambda w, i: jnp.sum(jnp.tanh(w[i] @ w)) + jnp.sum(jnp.cos(w[:, i])), W, IDS,
    ),
    "looked up along both axes, opposite signs": (
        lambda w, i: jnp.sum(jnp.sin(w[i])) - 2 * jnp.sum(jnp.sin(w.T[i])), W, IDS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, method, x64):
    loss, w, batch = LOSSES[name]
    check_against_oracle(loss, w, batch, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_batch_with_a_tapped_parameter(method, x64):
    def loss(params, x):
        return jnp.sum(jnp.tanh(x @ params["w"] + params["b"]))

    check_against_oracle(loss, {"w": W, "b": normal(2, 4)}, np.zeros((0, 2, 4)), method=method)


def test_a_scan_of_no_steps(x64):
    def loss(w, x):
        h, _ = lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, None, length=0)
        return jnp.sum(h @ w)

    check_against_oracle(loss, W, X)
