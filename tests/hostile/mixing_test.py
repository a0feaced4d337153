"""Losses that would let one example touch another's gradient, if they were batched as they ask to be.

Each is run on a batch and on the same batch with one row changed: what the other rows contribute must
stay, bit for bit. The oracle is a loop that shows the loss one example at a time.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax

B = 4
X = np.random.default_rng(0).normal(size=(B, 3)).astype(np.float32)
W = np.ones(3, np.float32)


@jax.custom_batching.custom_vmap
def centred(z):
    return z


@centred.def_vmap
def _(size, is_batched, z):
    return z - z.mean(axis=0), True  # a rule that sees the whole batch


def sum_of_squares(z):
    """Of each row for itself when called with one, of all rows when they come together."""
    return np.broadcast_to(np.sum(z * z).astype(z.dtype), z.shape)


def called_back(z, method):
    shape = jax.ShapeDtypeStruct(z.shape, z.dtype)
    return jax.pure_callback(sum_of_squares, shape, z, vmap_method=method)


def itself(z):
    return z


def in_the_open(mix):
    return lambda w, x: jnp.sum(mix(x @ w) ** 2)


def in_a_scan(mix):
    def loss(w, x):
        return jax.lax.scan(lambda total, row: (total + jnp.sum(mix(row @ w) ** 2), None), 0.0, x)[
            0
        ]

    return loss


def in_a_branch(mix):
    def loss(w, x):
        return jnp.sum(jax.lax.cond(x[0, 0] > 0, mix, lambda z: 2 * mix(z), x @ w) ** 2)

    return loss


def in_remat(mix):
    return lambda w, x: jnp.sum(jax.checkpoint(jax.jit(lambda z: mix(jnp.tanh(z)) ** 2))(x @ w))


def on_a_constant(mix):
    return lambda w, x: jnp.sum((jax.lax.stop_gradient(mix(x)) * x) @ w)


PLACES = [in_the_open, in_a_scan, in_a_branch, in_remat, on_a_constant]


def with_callback(method):
    return on_a_constant(lambda x: called_back(jax.lax.stop_gradient(x), method))


def check_against_a_loop(loss, alone, method):
    grad_fn = bk_jax.clipped_value_and_grad(
        loss, l2_clip_norm=1e6, method=method, return_stats=True
    )
    _, grads, stats = jax.jit(grad_fn)(W, X)
    gradient = jax.jit(jax.grad(alone))
    each = np.stack([np.asarray(gradient(W, X[i : i + 1])) for i in range(B)])
    np.testing.assert_allclose(stats.norms, np.linalg.norm(each, axis=1), rtol=1e-4)
    np.testing.assert_allclose(grads, each.sum(0), rtol=1e-4)


@pytest.mark.parametrize("method", ["auto", "opacus", "ghost_clip"])
@pytest.mark.parametrize("place", PLACES)
def test_a_batching_rule_is_not_used(place, method):
    check_against_a_loop(place(centred), place(itself), method)


@pytest.mark.parametrize("method", ["auto", "opacus", "ghost_clip"])
@pytest.mark.parametrize("batching", ["expand_dims", "broadcast_all", "sequential", None])
def test_callbacks_see_one_example(batching, method):
    check_against_a_loop(with_callback(batching), with_callback("sequential"), method)


@pytest.mark.parametrize("loss", [in_the_open(centred), with_callback("broadcast_all")])
def test_one_example_moves_only_its_own_gradient(loss):
    grad_fn = jax.jit(bk_jax.clipped_value_and_grad(loss))
    other = X.copy()
    other[2] *= 1000
    without = np.arange(B) == 2
    one = grad_fn(W, X, is_padding_example=without)[1]
    two = grad_fn(W, other, is_padding_example=without)[1]
    np.testing.assert_array_equal(one, two)
    assert np.linalg.norm(grad_fn(W, X)[1] - grad_fn(W, other)[1]) <= 2 * (1 + 1e-6)


# --- what is refused ---


@jax.custom_vjp
def by_numpy(z):
    return z


by_numpy.defvjp(
    lambda z: (z, z), lambda z, g: (g * called_back(jax.lax.stop_gradient(z), "broadcast_all"),)
)


@jax.custom_jvp
def by_rule(z):
    return z


@by_rule.defjvp
def _(primals, tangents):
    return primals[0], tangents[0] * centred(jax.lax.stop_gradient(primals[0]))


def counted(z):
    counted.seen += float(np.sum(z))
    return np.float32(counted.seen)


counted.seen = 0.0


def with_memory(w, x):
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    return jnp.sum(x @ w) * jax.experimental.io_callback(counted, shape, x)


def test_callbacks_in_a_rule_are_refused():
    with pytest.raises(ValueError, match=r"rule of a custom_vjp.*mixing_test.py.*pure_callback"):
        bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(by_numpy(x @ w)))(W, X)


def test_custom_vmap_in_a_rule_is_refused():
    with pytest.raises(ValueError, match=r"rule of a custom_jvp.*custom_vmap"):
        bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(by_rule(x @ w)))(W, X)


def test_a_callback_that_remembers_is_refused():
    with pytest.raises(ValueError, match=r"result of io_callback.*mixing_test.py.*pure_callback"):
        bk_jax.clipped_value_and_grad(with_memory)(W, X)


def test_logging_is_let_through():
    seen = []

    def loss(w, x):
        jax.debug.callback(lambda z: seen.append(float(z)), jnp.sum(x))
        return jnp.sum(x @ w)

    bk_jax.clipped_value_and_grad(loss)(W, X)
    jax.effects_barrier()
    assert len(seen) == B


@pytest.mark.parametrize("collective", [jax.lax.psum, jax.lax.pmean, jax.lax.all_gather])
def test_collectives_of_an_outer_vmap_are_refused(collective):
    def loss(w, x):
        return jnp.sum(collective(x @ w, "models"))

    grad_fn = bk_jax.clipped_value_and_grad(loss)
    with pytest.raises(ValueError, match=r"mixing_test.py.*along \['models'\], an axis of a vmap"):
        jax.vmap(grad_fn, in_axes=(0, None), axis_name="models")(np.stack([W, W]), X)


def test_collectives_of_a_vmap_inside_the_loss_are_its_own():
    def loss(w, x):
        return jnp.sum(jax.vmap(lambda r: jax.lax.psum(r @ w, "rows"), axis_name="rows")(x))

    bk_jax.clipped_value_and_grad(loss)(W, X)


def test_the_number_of_a_model_is_no_communication():
    def loss(w, x):
        return jnp.sum(x @ w) * jax.lax.axis_index("models")

    grad_fn = bk_jax.clipped_value_and_grad(loss)
    _, grads = jax.vmap(grad_fn, in_axes=(0, None), axis_name="models")(np.stack([W, W]), X)
    assert np.all(np.asarray(grads[0]) == 0)
    assert np.all(np.asarray(grads[1]) != 0)
