"""Training some parameters: the parts, and that nothing is computed for the frozen ones."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import mlp
from models.model import classification_loss
from support.structure import equations, jaxpr_shapes

import bk_jax
from bk_jax import peft
from bk_jax.peft.select import biases

SIZES = (5, 7, 11, 3)
EXAMPLES, TOKENS = 2, 17


def loss_fn(params, batch):
    x = batch
    for name in sorted(params):
        x = jnp.tanh(x @ params[name]["kernel"] + params[name]["bias"])
    return jnp.sum(x)


def network():
    rng = np.random.default_rng(0)
    return {
        f"layer{i}": {
            "kernel": rng.normal(size=(d, p)).astype(np.float32),
            "bias": rng.normal(size=p).astype(np.float32),
        }
        for i, (d, p) in enumerate(itertools.pairwise(SIZES))
    }


PARAMS = network()
BATCH = np.random.default_rng(1).normal(size=(EXAMPLES, TOKENS, SIZES[0])).astype(np.float32)


def step_jaxpr(match):
    trainable, frozen = peft.partition(PARAMS, match)
    grad_fn = bk_jax.clipped_value_and_grad(peft.with_frozen(loss_fn))
    step = lambda trainable, batch, frozen: grad_fn(trainable, batch, frozen=frozen)  # noqa: E731
    return jax.make_jaxpr(step)(trainable, BATCH, frozen)


def num_products(jaxpr):
    return sum(str(eqn.primitive) == "dot_general" for eqn in equations(jaxpr))


# --- what is computed ---


def test_biases_need_the_products_of_forward_and_input_gradients_alone():
    jaxpr = step_jaxpr(biases)
    assert num_products(jaxpr) == 3 + 2
    kernels = {layer["kernel"].shape for layer in PARAMS.values()}
    assert not {shape[-2:] for shape in jaxpr_shapes(jaxpr)} & kernels


def test_back_propagation_of_the_last_layer_ends_there():
    assert num_products(step_jaxpr("layer2/bias")) == 3
    trainable, frozen = peft.partition(PARAMS, "layer2/*")
    grad_fn = bk_jax.clipped_value_and_grad(peft.with_frozen(loss_fn))
    routes = grad_fn.explain(trainable, BATCH, frozen=frozen).routes()
    assert set(routes) == {"layer2/bias", "layer2/kernel"}
    shapes = jaxpr_shapes(step_jaxpr("layer2/*"))
    assert not {shape[-2:] for shape in shapes} & {(5, 7), (7, 11)}


def test_gradients_are_those_of_the_whole_model():
    trainable, frozen = peft.partition(PARAMS, ["layer1/kernel", "*/bias"])
    loss = peft.with_frozen(loss_fn)
    options = {"l2_clip_norm": np.inf}
    grad_fn = jax.jit(bk_jax.clipped_value_and_grad(loss, **options))
    _, part = grad_fn(trainable, BATCH, frozen=frozen)
    _, whole = jax.jit(bk_jax.clipped_value_and_grad(loss_fn, **options))(PARAMS, BATCH)
    assert jax.tree.structure(part) == jax.tree.structure(trainable)
    for path, gradient in jax.tree.leaves_with_path(part):
        expected = functools.reduce(lambda tree, key: tree[key.key], path, whole)
        np.testing.assert_allclose(gradient, expected, rtol=2e-5, atol=1e-4)


def test_other_frozen_values_do_not_compile_again():
    trainable, frozen = peft.partition(PARAMS, "*/bias")
    grad_fn = bk_jax.clipped_value_and_grad(peft.with_frozen(loss_fn))
    traces = []

    @jax.jit
    def step(trainable, batch, frozen):
        traces.append(1)
        return grad_fn(trainable, batch, frozen=frozen)[1]

    one = step(trainable, BATCH, frozen)
    two = step(trainable, BATCH, jax.tree.map(lambda x: 0 * x, frozen))
    assert len(traces) == 1
    assert np.any(one["layer0"]["bias"] != two["layer0"]["bias"])


def test_the_frozen_part_may_be_closed_over():
    trainable, frozen = peft.partition(PARAMS, "*/bias")
    loss = functools.partial(peft.with_frozen(loss_fn), frozen=frozen)
    value, _ = jax.jit(bk_jax.clipped_value_and_grad(loss))(trainable, BATCH)
    np.testing.assert_allclose(value, loss_fn(PARAMS, BATCH) / EXAMPLES, rtol=1e-5)


# --- the parts ---

LIBRARIES = [mlp.mlp_plain, mlp.mlp_linen, mlp.mlp_nnx, mlp.mlp_equinox, mlp.mlp_haiku]


@pytest.mark.parametrize("make", LIBRARIES, ids=lambda make: make.__name__)
def test_trees_of_every_library(make):
    model = make()
    match = "b*" if make is mlp.mlp_plain else biases
    trainable, frozen = peft.partition(model.args[0], match)
    assert sorted(x.shape for x in jax.tree.leaves(trainable)) == [(4,), (9,)]
    assert all(x.ndim == 2 for x in jax.tree.leaves(frozen))
    combined = peft.combine(trainable, frozen)
    assert jax.tree.structure(combined) == jax.tree.structure(model.args[0])
    for one, other in zip(jax.tree.leaves(combined), jax.tree.leaves(model.args[0]), strict=True):
        assert one is other


def test_numpy_parameters_may_be_looked_up_in():
    """A frozen table in NumPy is indexed by traced ids."""
    loss = classification_loss(lambda params, ids: params["table"][ids].mean(1) @ params["head"])
    params = {"table": np.ones((4, 3), np.float32), "head": np.ones((3, 2), np.float32)}
    trainable, frozen = peft.partition(params, "head")
    batch = (np.zeros((2, 5), np.int32), np.zeros(2, np.int32))
    of_head = functools.partial(peft.with_frozen(loss), frozen=frozen)
    assert jnp.isfinite(jax.jit(bk_jax.clipped_value_and_grad(of_head))(trainable, batch)[0])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("dense/bias", True),
        ("linear/b", True),
        ("norm/offset", True),
        ("layers/0/bias", True),
        ("bias/kernel", False),
        ("dense/scale", False),
        ("biased", False),
    ],
)
def test_what_a_bias_is(path, expected):
    assert biases(path, None) is expected


def test_patterns_must_match():
    with pytest.raises(
        ValueError, match="pattern 'layer9/\\*' matches no parameter; paths are layer0/"
    ):
        peft.partition(PARAMS, "layer9/*")


def test_parts_that_overlap_are_refused():
    with pytest.raises(ValueError, match="'layer0/bias' is in both parts"):
        peft.combine(PARAMS, PARAMS)
