"""`bk_jax.equinox.filter_value_and_grad` in place of `eqx.filter_value_and_grad`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bk_jax
from bk_jax.paths import leaf_names

B, D = 4, 3
X = np.arange(B * D, dtype=np.float32).reshape(B, D) / 4
Y = np.asarray([1, -1, 2, 0], np.float32)
BATCH = {"x": X, "y": Y}


class Network(eqx.Module):
    """Layers, a function, a number, and arrays that have no gradient."""

    mlp: eqx.nn.MLP
    order: jax.Array
    scale: float

    def __init__(self):
        self.mlp = eqx.nn.MLP(D, 1, 5, 2, activation=jnp.tanh, key=jax.random.key(0))
        self.order = jnp.asarray([2, 0, 1])
        self.scale = 0.5

    def __call__(self, x):
        return self.scale * self.mlp(x[self.order])[0]


def loss_fn(model, batch):
    return jnp.sum((jax.vmap(model)(batch["x"]) - batch["y"]) ** 2)


def unclipped(loss_fn=loss_fn, **options):
    """Without clipping and noise a private gradient is the plain one of the sum."""
    options = {"l2_clip_norm": np.inf, "noise_multiplier": 0.0, **options}
    return bk_jax.equinox.filter_value_and_grad(loss_fn, **options)


def assert_same(got, expected):
    assert leaf_names(got) == leaf_names(expected)
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)


@pytest.mark.parametrize("jit", [eqx.filter_jit, lambda f: f], ids=["filter_jit", "none"])
def test_the_gradient_is_that_of_equinox_where_nothing_is_clipped(jit):
    value, grads = jit(unclipped())(Network(), BATCH)
    plain, expected = eqx.filter_value_and_grad(loss_fn)(Network(), BATCH)
    assert_same(grads, expected)
    np.testing.assert_allclose(value, plain / B, rtol=1e-5)  # the mean over examples


def test_a_loss_of_the_bare_example():
    def loss_of_one(model, batch):
        return (model(batch["x"]) - batch["y"]) ** 2

    _, grads = unclipped(loss_of_one, keep_batch_dim=False)(Network(), BATCH)
    assert_same(grads, eqx.filter_grad(loss_fn)(Network(), BATCH))


def test_updates_are_applied():
    optimizer = optax.sgd(1.0)
    grad_fn = bk_jax.equinox.filter_value_and_grad(loss_fn, normalize_by=B)

    @eqx.filter_jit
    def step(model, opt_state, batch, key):
        _, grads = grad_fn(model, batch, key=key)
        updates, opt_state = optimizer.update(grads, opt_state)
        return eqx.apply_updates(model, updates), opt_state, grads

    before = Network()
    state = optimizer.init(eqx.filter(before, eqx.is_inexact_array))
    model, _, grads = step(before, state, BATCH, jax.random.key(0))
    moved = before.mlp.layers[0].weight - model.mlp.layers[0].weight
    np.testing.assert_allclose(moved, grads.mlp.layers[0].weight, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.order, before.order)
    assert model.scale == 0.5


def test_routes_of_a_model_and_of_its_shapes():
    grad_fn = bk_jax.equinox.filter_value_and_grad(loss_fn)
    routes = grad_fn.explain(Network(), BATCH).routes()
    assert routes["mlp/layers/0/bias"] == "leaf"
    assert routes["mlp/layers/0/weight"] in {"ghost", "store", "fused"}
    assert grad_fn.explain(eqx.filter_eval_shape(Network), BATCH).routes() == routes


def test_dropout_by_a_key_for_each_example():
    layer = eqx.nn.Dropout(0.5)

    def with_dropout(model, batch, key):
        return loss_fn(model, batch), layer(jnp.ones(16), key=key)

    grad_fn = unclipped(with_dropout, has_aux=True, prng_argnum=2)
    (_, rows), _ = grad_fn(Network(), BATCH, jax.random.key(0))
    assert len({tuple(row) for row in np.asarray(rows)}) == B


def test_arrays_without_gradient_may_have_as_many_rows_as_the_batch():
    assert np.isfinite(unclipped()(Network(), jax.tree.map(lambda x: x[:3], BATCH))[0])


def test_labels_that_are_no_part_of_the_batch_are_refused():
    with pytest.raises(ValueError, match=r"write batch_argnums=\(1, 2\)"):
        unclipped(lambda model, x, y: loss_fn(model, {"x": x, "y": y}))(Network(), X, Y)


def test_batch_norm_in_training_mode_is_refused():
    model, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(D, axis_name="batch", mode="batch")

    def normalised(model, batch, state):
        return jnp.sum(jax.vmap(lambda x: model(x, state)[0], axis_name="batch")(batch["x"]))

    with pytest.raises(ValueError, match=r"eqx\.nn\.BatchNorm in training mode") as info:
        unclipped(normalised)((model, 1.0), BATCH, state)
    assert "GroupNorm or LayerNorm" in str(info.value)
    assert "eqx.nn.inference_mode(model)" in str(info.value)


def test_aux_may_hold_what_is_no_array():
    def with_all(model, batch):
        return loss_fn(model, batch), {"name": "run", "model": model, "n": 2, "none": None}

    grad_fn = unclipped(with_all, has_aux=True)
    for aux in (grad_fn(Network(), BATCH)[0][1], grad_fn.clipped_sums(Network(), BATCH).aux):
        assert (aux["name"], aux["none"], aux["model"].scale.shape) == ("run", None, (B,))
        assert aux["model"].mlp.activation is jnp.tanh
        assert aux["model"].order.shape == (B, D)
        np.testing.assert_array_equal(aux["n"], [2] * B)


def test_argnums_is_refused_as_in_equinox():
    with pytest.raises(TypeError, match="pass a tuple of them as the first argument"):
        bk_jax.equinox.filter_value_and_grad(loss_fn, argnums=1)


def test_it_decorates():
    @bk_jax.equinox.filter_value_and_grad(has_aux=True, noise_multiplier=0.0)
    def grad_fn(model, batch):
        return loss_fn(model, batch), None

    (value, seen), _ = grad_fn(Network(), BATCH)
    assert value.shape == ()
    assert seen is None
