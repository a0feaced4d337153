"""Control flow, custom derivatives, mapped and random computations, and mixed precision."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen

from models import layers
from models.model import (
    VOCAB,
    B,
    D,
    Model,
    T,
    classification_loss,
    cross_entropy,
    fill,
    images,
    labels,
    next_token_loss,
    tokens,
)

BATCH = (images(1, B, T, D), labels(2, 4))
MLP_SHAPES = {"first": layers.dense_shapes(D, 6), "second": layers.dense_shapes(6, 4)}
MLP_KINDS = {"*/kernel": "dense", "*/bias": "leaf"}


def cond_inside() -> Model:
    """The example decides which of two layers is applied; the last layer is not in doubt."""

    def logits(params, x):
        def apply(layer):
            return lambda x: layers.dense(params[layer], x)

        x = jax.lax.cond(jnp.sum(x) > 0, apply("yes"), apply("no"), x)
        return layers.dense(params["head"], jnp.sin(x).mean(1))

    shapes = {name: layers.dense_shapes(D, D) for name in ("yes", "no")}
    shapes["head"] = layers.dense_shapes(D, 4)
    kinds = {"yes/*": "leaf", "no/*": "leaf", **MLP_KINDS}
    return Model(classification_loss(logits), (fill(shapes), BATCH), kinds)


def switch_inside() -> Model:
    """The class of the example decides among three heads; the body is used inside and outside."""

    def loss(params, batch):
        x, y = batch
        branches = [lambda x, i=i: x @ params["heads"][i] for i in range(3)]
        hidden = jnp.sin(x @ params["body"])
        out = jax.lax.switch(y[0] % 3, branches, hidden @ params["body"])
        return cross_entropy(out.mean(1), y)

    params = fill({"body": (D, D), "heads": [(D, 4)] * 3})
    return Model(loss, (params, BATCH), {"body": "dense", "heads/*": "leaf"})


def custom_vjp_inside() -> Model:
    """A layer whose derivative the user wrote: the half of the true one, with a weight inside."""

    @jax.custom_vjp
    def layer(kernel, x):
        return x @ kernel

    def backward(saved, g):
        kernel, x = saved
        g = 0.5 * g
        return jnp.einsum("btd,btp->dp", x, g), g @ kernel.T

    layer.defvjp(lambda kernel, x: (layer(kernel, x), (kernel, x)), backward)

    def logits(params, x):
        x = layer(params["inside"], jnp.sin(x @ params["before"]))
        return (jnp.sin(x) @ params["after"]).mean(1)

    params = fill({"before": (D, D), "inside": (D, D), "after": (D, 4)})
    kinds = {"before": "dense", "inside": "leaf", "after": "dense"}
    return Model(classification_loss(logits), (params, BATCH), kinds)


def custom_jvp_inside() -> Model:
    """A rule for the derivative in forward mode; straight-through rounding of a weight."""

    @jax.custom_jvp
    def layer(kernel, x):
        return jnp.sin(x @ kernel)

    @layer.defjvp
    def _(primals, tangents):
        kernel, x = primals
        dk, dx = tangents
        return layer(kernel, x), 0.5 * jnp.cos(x @ kernel) * (x @ dk + dx @ kernel)

    def quantised(w):
        return w + jax.lax.stop_gradient(jnp.round(8 * w) / 8 - w)

    def logits(params, x):
        x = layer(params["inside"], jax.nn.relu(x @ params["before"]))
        return (x @ quantised(params["rounded"])).mean(1)

    params = fill({"before": (D, D), "inside": (D, D), "rounded": (D, 4)})
    kinds = {"before": "dense", "inside": "leaf", "rounded": "leaf"}
    return Model(classification_loss(logits), (params, BATCH), kinds)


def vmap_inside() -> Model:
    """`vmap` over tokens, over an ensemble of weights, and over heads of an embedding."""

    def logits(params, batch):
        ids, x = batch
        token = jax.vmap(lambda i: params["embedding"][i])
        x = x + jax.vmap(token)(ids)
        per_token = jax.vmap(jax.vmap(lambda v: params["shared"] @ v))
        members = jax.vmap(lambda w, b: jnp.sin(x @ w + b))(params["w"], params["b"])
        return jax.vmap(per_token)(members).mean((0, 2))

    def loss(params, batch):
        return cross_entropy(logits(params, batch[:2]), batch[2])

    shapes = {"embedding": (VOCAB, D), "shared": (4, D), "w": (3, D, D), "b": (3, D)}
    batch = (tokens(3, B, T), *BATCH)
    kinds = {"embedding": "lookup", "shared": "dense", "w": "dense", "b": "leaf"}
    return Model(loss, (fill(shapes), batch), kinds)


def vmapped_convolutions() -> Model:
    """An ensemble of convolutions by `vmap` over their kernels."""

    def logits(params, x):
        def member(kernel, head):
            y = jax.lax.conv_general_dilated(
                x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
            )
            return jnp.sin(y).mean(1) @ head

        return jax.vmap(member)(params["kernels"], params["heads"]).mean(0)

    params = fill({"kernels": (2, 3, D, 4), "heads": (2, 4, 4)})
    kinds = {"kernels": "conv", "heads": "dense"}
    return Model(classification_loss(logits), (params, BATCH), kinds)


def lax_map() -> Model:
    """`lax.map` over tokens, one at a time and in groups of two with a remainder."""

    def logits(params, x):
        x = jax.lax.map(lambda v: jnp.sin(layers.dense(params["first"], v)), x[0])
        x = jax.lax.map(lambda v: layers.dense(params["second"], v), x, batch_size=2)
        return x.mean(0)[None]

    return Model(classification_loss(logits), (fill(MLP_SHAPES), BATCH), MLP_KINDS)


def fori_loop() -> Model:
    """A weight in a loop of known length, one row of a table at each step."""

    def logits(params, x):
        def step(i, x):
            return jnp.sin(x @ params["kernel"] + params["biases"][i])

        return (jax.lax.fori_loop(0, 4, step, x) @ params["head"]).mean(1)

    params = fill({"kernel": (D, D), "biases": (4, D), "head": (D, 4)})
    kinds = {"kernel": "dense", "biases": "lookup", "head": "dense"}
    return Model(classification_loss(logits), (params, BATCH), kinds)


def views_of_parameters() -> Model:
    """One fused array cut into weights; weights joined, transposed, stacked, unstacked, reversed."""

    def logits(params, x):
        q, k = jnp.split(params["fused"][:, : 2 * D], 2, axis=1)
        x = jnp.sin(x @ q) + jnp.cos(x @ k.T) + x @ params["fused"][:, 2 * D :]
        joined = jnp.concatenate([params["left"], params["right"]], axis=1)
        x = jnp.sin(x @ joined.reshape(D, 2, 3).transpose(0, 2, 1).reshape(D, 6))
        for kernel in jnp.unstack(params["stack"]):
            x = jnp.sin(x @ kernel)
        layers = jnp.stack([params["layer1"], params["layer2"]])
        x, _ = jax.lax.scan(lambda x, kernel: (jnp.sin(x @ kernel), None), x, layers)
        return (x @ params["flat"][::-1].reshape(6, 4)).mean(1)

    shapes = {"fused": (D, 3 * D), "left": (D, 2), "right": (D, 4), "stack": (2, 6, 6)}
    shapes |= {"flat": (24,), "layer1": (6, 6), "layer2": (6, 6)}
    return Model(classification_loss(logits), (fill(shapes), BATCH), dict.fromkeys(shapes, "dense"))


def one_hot_and_dense() -> Model:
    """A table that is looked up, multiplied by one-hot vectors and used as a head."""

    def logits(params, ids):
        one_hot = jax.nn.one_hot(ids, VOCAB, dtype=params["table"].dtype)
        x = jnp.take(params["table"], ids, axis=0) + jnp.sin(one_hot @ params["table"])
        return jnp.sin(x @ params["dense"]) @ params["table"].T

    params = fill({"table": (VOCAB, D), "dense": (D, D)})
    args = (params, tokens(1, B, T + 1))
    return Model(next_token_loss(logits), args, {"table": "tied", "dense": "dense"})


def dropout() -> Model:
    """Every example drops other units; the key is split further inside."""

    def drop(key, x):
        keep = jax.random.bernoulli(key, jnp.float32(0.75), x.shape)
        return jnp.where(keep, x / 0.75, 0)

    def loss(params, batch, key):
        x, y = batch
        one, two = jax.random.split(key)
        hidden = drop(two, jnp.sin(layers.dense(params["first"], drop(one, x))))
        return cross_entropy(layers.dense(params["second"], hidden).mean(1), y)

    args = (fill(MLP_SHAPES), BATCH, np.asarray([0, 3], np.uint32))
    return Model(loss, args, MLP_KINDS, {"prng_argnum": 2})


def mixed_precision_plain() -> Model:
    """Products in bfloat16, accumulated in float32 at the end; parameters stay what they are."""

    def logits(params, x):
        low = functools.partial(jax.tree.map, lambda a: a.astype(jnp.bfloat16))
        x = jax.nn.gelu(layers.dense(low(params["first"]), low(x)))
        out = jnp.dot(x, low(params["second"]["kernel"]), preferred_element_type=jnp.float32)
        return (out + params["second"]["bias"]).mean(1)

    args = (fill(MLP_SHAPES), BATCH)
    return Model(classification_loss(logits), args, MLP_KINDS, dtype=jnp.bfloat16)


def mixed_precision_linen() -> Model:
    """Layers with `dtype=bfloat16`: parameters are cast at every use."""

    class Low(linen.Module):
        @linen.compact
        def __call__(self, ids):
            embed = linen.Embed(VOCAB, D, dtype=jnp.bfloat16)
            x = linen.LayerNorm(epsilon=0.1, dtype=jnp.bfloat16)(embed(ids))
            x = linen.gelu(linen.Dense(D, dtype=jnp.bfloat16)(x))
            return embed.attend(x).astype(jnp.float32)

    module, ids = Low(), tokens(1, B, T + 1)
    params = fill(jax.eval_shape(module.init, jax.eval_shape(jax.random.key, 0), ids))
    kinds = {"*/embedding": "tied", "*/kernel": "dense", "*/bias": "leaf", "*/scale": "leaf"}
    return Model(next_token_loss(module.apply), (params, ids), kinds, dtype=jnp.bfloat16)


MODELS = [
    cond_inside,
    switch_inside,
    custom_vjp_inside,
    custom_jvp_inside,
    vmap_inside,
    vmapped_convolutions,
    lax_map,
    fori_loop,
    views_of_parameters,
    one_hot_and_dense,
    dropout,
    mixed_precision_plain,
    mixed_precision_linen,
]
