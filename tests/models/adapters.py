"""Fine-tuning: most parameters are frozen, few are trained."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx, traverse_util

from models import layers
from models.model import B, D, Model, T, classification_loss, cross_entropy, fill, images, labels

KEY = jax.eval_shape(jax.random.key, 0)
BATCH = (images(1, B, T, D), labels(2, 4))
FROZEN_SHAPES = {"block": layers.transformer_block_shapes(D), "head": layers.dense_shapes(D, 4)}


def lora_plain() -> Model:
    """Low-rank updates of the projections; the frozen network is another argument."""

    def with_lora(frozen, lora, x):
        return layers.dense(frozen, x) + 0.5 * (x @ lora["a"]) @ lora["b"]

    def loss(lora, batch, frozen):
        x, y = batch
        attention = frozen["block"]["attention"]
        q, k, v = jnp.split(with_lora(attention["qkv"], lora["qkv"], x)[:, :, None], 3, axis=-1)
        x = x + with_lora(attention["out"], lora["out"], layers.attention(q, k, v)[:, :, 0])
        return cross_entropy(layers.dense(frozen["head"], x[:, 0]), y)

    lora = {"qkv": {"a": (D, 2), "b": (2, 3 * D)}, "out": {"a": (D, 2), "b": (2, D)}}
    args = (fill(lora), BATCH, fill(FROZEN_SHAPES, seed=1))
    return Model(loss, args, {"*/a": "dense", "*/b": "dense"})


def lora_merged() -> Model:
    """Low-rank matrices multiplied by each other first: no longer a layer, but small."""

    def loss(frozen, lora, batch):
        x, y = batch
        kernel = frozen["kernel"] + lora["a"] @ lora["b"]
        return cross_entropy((x @ kernel + frozen["bias"]).mean(1), y)

    args = (fill(layers.dense_shapes(D, 4)), fill({"a": (D, 2), "b": (2, 4)}, seed=1), BATCH)
    options = {"argnums": 1, "batch_argnums": 2}
    return Model(loss, args, {"a": "leaf", "b": "leaf"}, options)


class NnxLoRA(nnx.Module):
    """Layers of nnx with its own LoRA beside them."""

    def __init__(self, rngs: nnx.Rngs):
        self.up = nnx.LoRALinear(D, 2 * D, lora_rank=2, rngs=rngs)
        self.down = nnx.LoRALinear(2 * D, 4, lora_rank=2, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.gelu(self.up(x))).mean(1)


def lora_nnx() -> Model:
    """Trained is what has the type `LoRAParam`; the rest is an argument that is not differentiated."""
    abstract = nnx.eval_shape(lambda: NnxLoRA(nnx.Rngs(0)))
    graph, lora, frozen = nnx.split(abstract, nnx.LoRAParam, ...)

    def loss(lora, batch, frozen):
        return cross_entropy(nnx.merge(graph, lora, frozen)(batch[0]), batch[1])

    frozen = jax.tree.map(lambda s: s if s.dtype == jnp.float32 else None, frozen)
    args = (fill(lora), BATCH, fill(frozen, seed=1))
    return Model(loss, args, {"*lora_a*": "dense", "*lora_b*": "dense"})


def lora_equinox() -> Model:
    """A filter splits the model into what is trained and what is closed over."""

    class Lora(eqx.Module):
        base: eqx.nn.Linear
        a: jax.Array
        b: jax.Array

        def __init__(self, d, p, key):
            self.base = eqx.nn.Linear(d, p, key=key)
            self.a, self.b = jnp.zeros((2, d)), jnp.zeros((p, 2))

        def __call__(self, x):
            return self.base(x) + self.b @ (self.a @ x)

    def build(key):
        one, two = jax.random.split(key)
        return (Lora(D, 2 * D, one), Lora(2 * D, 4, two))

    shapes = eqx.filter_eval_shape(build, KEY)
    arrays, static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    spec = jax.tree.map_with_path(lambda path, _: path[-1].name in ("a", "b"), arrays)
    trained, frozen = eqx.partition(fill(arrays), spec)

    def loss(trained, batch, frozen):
        first, second = eqx.combine(trained, frozen, static)
        x, y = batch
        hidden = jax.nn.gelu(jax.vmap(first)(x))
        return cross_entropy(jax.vmap(second)(hidden).mean(0), y)

    kinds = {"*/a": "dense", "*/b": "dense"}
    return Model(loss, (trained, BATCH, frozen), kinds, {"keep_batch_dim": False})


class LinenAdapters(linen.Module):
    """A frozen layer, a trained bottleneck and norm behind it, a trained head."""

    @linen.compact
    def __call__(self, x):
        x = linen.relu(linen.Dense(D, name="frozen")(x))
        down = linen.gelu(linen.Dense(2, name="adapter_down")(x))
        x = x + linen.Dense(D, name="adapter_up")(down)
        x = linen.LayerNorm(epsilon=0.1, name="adapter_norm")(x)
        return linen.Dense(4, name="head")(x.mean(1))


def adapters_linen() -> Model:
    """The parameters are split by name into two dictionaries."""
    module = LinenAdapters()
    flat = traverse_util.flatten_dict(jax.eval_shape(module.init, KEY, BATCH[0])["params"])
    trained = {path: shape for path, shape in flat.items() if path[0] != "frozen"}
    frozen = {path: shape for path, shape in flat.items() if path[0] == "frozen"}

    def logits(params, x):
        merged = traverse_util.flatten_dict(params) | frozen_arrays
        return module.apply({"params": traverse_util.unflatten_dict(merged)}, x)

    frozen_arrays = fill(frozen, seed=1)
    params = fill(traverse_util.unflatten_dict(trained))
    kinds = {"*/kernel": "dense", "*/bias": "leaf", "*/scale": "leaf"}
    return Model(classification_loss(logits), (params, BATCH), kinds)


def bias_only() -> Model:
    """BitFit: every kernel is frozen, as a constant of the loss."""
    frozen = fill(FROZEN_SHAPES, seed=1)
    is_bias = jax.tree.map_with_path(lambda path, _: path[-1].key == "bias", frozen)
    biases = jax.tree.map(lambda x, trained: x if trained else None, frozen, is_bias)

    def logits(biases, x):
        is_none = lambda x: x is None  # noqa: E731
        params = jax.tree.map(lambda b, f: f if b is None else b, biases, frozen, is_leaf=is_none)
        x = layers.transformer_block(params["block"], x)
        return layers.dense(params["head"], x[:, 0])

    return Model(classification_loss(logits), (biases, BATCH), {"*/bias": "leaf"})


def frozen_integers() -> Model:
    """A quantised, frozen kernel among the parameters, and a trained one beside it."""

    def logits(params, x):
        kernel = params["int8"].astype(x.dtype) * params["step"]
        return (jnp.sin(x @ kernel) @ params["head"]).mean(1)

    integers = np.random.default_rng(0).integers(-3, 4, (D, D)).astype(np.int8)
    params = {"int8": integers} | fill({"step": (D,), "head": (D, 4)})
    return Model(classification_loss(logits), (params, BATCH), {"step": "leaf", "head": "dense"})


MODELS = [
    lora_plain,
    lora_merged,
    lora_nnx,
    lora_equinox,
    adapters_linen,
    bias_only,
    frozen_integers,
]
