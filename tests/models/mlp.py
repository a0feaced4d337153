"""A two-layer network in every library, and the ways to train less or more of it than usual."""

from __future__ import annotations

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
from flax import linen, nnx

from models.model import B, Model, classification_loss, fill, images, labels

BATCH = (images(1, B, 6), labels(2, 4))
KEY = jax.eval_shape(jax.random.key, 0)


def mlp_plain() -> Model:
    def logits(params, x):
        hidden = jnp.tanh(x @ params["w1"] + params["b1"])
        return hidden @ params["w2"] + params["b2"]

    params = fill({"w1": (6, 9), "b1": (9,), "w2": (9, 4), "b2": (4,)})
    return Model(classification_loss(logits), (params, BATCH), {"w*": "dense", "b*": "leaf"})


def mlp_linen() -> Model:
    module = linen.Sequential([linen.Dense(9), linen.gelu, linen.Dense(4)])
    params = fill(jax.eval_shape(module.init, KEY, BATCH[0]))
    kinds = {"*/kernel": "dense", "*/bias": "leaf"}
    return Model(classification_loss(module.apply), (params, BATCH), kinds)


def mlp_nnx() -> Model:
    def build():
        rngs = nnx.Rngs(0)
        return nnx.Sequential(nnx.Linear(6, 9, rngs=rngs), nnx.silu, nnx.Linear(9, 4, rngs=rngs))

    graph, params = nnx.split(nnx.eval_shape(build))

    def logits(params, x):
        return nnx.merge(graph, params)(x)

    kinds = {"*kernel*": "dense", "*bias*": "leaf"}
    return Model(classification_loss(logits), (fill(params), BATCH), kinds)


def mlp_equinox() -> Model:
    """One example at a time, `weight @ x`: the parameter is the left operand."""
    shapes = eqx.filter_eval_shape(eqx.nn.MLP, 6, 4, 9, 1, key=KEY)
    params, static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def logits(params, x):
        return eqx.combine(params, static)(x)

    kinds = {"*weight": "dense", "*bias": "leaf"}
    args, options = (fill(params), BATCH), {"keep_batch_dim": False}
    return Model(classification_loss(logits), args, kinds, options)


def mlp_haiku() -> Model:
    def logits(x):
        return hk.nets.MLP([9, 4])(x)

    module = hk.without_apply_rng(hk.transform(logits))
    params = fill(jax.eval_shape(module.init, KEY, BATCH[0]))
    kinds = {"*/w": "dense", "*/b": "leaf"}
    return Model(classification_loss(module.apply), (params, BATCH), kinds)


def regulariser() -> Model:
    """A penalty on a weight is one more use of it, the same for every example."""
    plain = mlp_plain()

    def loss(params, batch):
        return plain.loss(params, batch) + 0.1 * jnp.sum(jnp.square(params["w1"]))

    return Model(loss, plain.args, {"w1": "leaf", "w2": "dense", "b*": "leaf"})


MODELS = [mlp_plain, mlp_linen, mlp_nnx, mlp_equinox, mlp_haiku, regulariser]
