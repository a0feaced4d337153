"""Many layers: stacked and scanned over, rematerialised, or one layer's parameters used again."""

from __future__ import annotations

import functools

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
from flax import linen, nnx
from jax.ad_checkpoint import checkpoint_name

from models import layers
from models.layers import TRANSFORMER_BLOCK_KINDS
from models.model import (
    VOCAB,
    B,
    D,
    Model,
    T,
    classification_loss,
    fill,
    images,
    labels,
    next_token_loss,
    tokens,
)
from models.transformers import LINEN_KINDS, LinenBlock

KEY = jax.eval_shape(jax.random.key, 0)
IDS = tokens(1, B, T + 1)
BATCH = (images(1, B, T, D), labels(2, 4))
LAYERS = 3


def stack(shapes, length=LAYERS):
    """The shapes with a leading axis of layers."""
    is_shape = lambda x: isinstance(x, tuple)  # noqa: E731
    return jax.tree.map(lambda shape: (length, *shape), shapes, is_leaf=is_shape)


def scan_remat_plain() -> Model:
    """A GPT2 whose layers are stacked, scanned over and computed again in the backward pass."""

    def logits(params, ids):
        x = params["embedding"][ids]
        bias = layers.causal_bias(T, x.dtype)

        @jax.checkpoint
        def layer(x, block):
            return layers.transformer_block(block, x, bias), None

        x, _ = jax.lax.scan(layer, x, params["blocks"])
        return x @ params["embedding"].T

    shapes = {"embedding": (VOCAB, D), "blocks": stack(layers.transformer_block_shapes(D))}
    kinds = {"embedding": "tied", **TRANSFORMER_BLOCK_KINDS}
    return Model(next_token_loss(logits), (fill(shapes), IDS), kinds)


def remat_policy_plain() -> Model:
    """Rematerialisation that keeps what has a name."""

    def logits(params, x):
        policy = jax.checkpoint_policies.save_only_these_names("kept")

        @functools.partial(jax.checkpoint, policy=policy)
        def layer(x, block):
            hidden = checkpoint_name(layers.dense(block["up"], x), "kept")
            return x + layers.dense(block["down"], jnp.sin(hidden)), None

        x, _ = jax.lax.scan(layer, x, params["blocks"], unroll=2)
        return layers.dense(params["head"], x.mean(1))

    block = {"up": layers.dense_shapes(D, 6), "down": layers.dense_shapes(6, D)}
    shapes = {"blocks": stack(block), "head": layers.dense_shapes(D, 4)}
    kinds = {"*/kernel": "dense", "*/bias": "leaf"}
    return Model(classification_loss(logits), (fill(shapes), BATCH), kinds)


class LinenScanned(linen.Module):
    """`nn.scan` over `nn.remat` of a block."""

    @linen.compact
    def __call__(self, ids):
        embed = linen.Embed(VOCAB, D)
        mask = linen.make_causal_mask(ids)

        def body(block, x, _):
            return block(x, mask), None

        scan = linen.scan(
            body, variable_axes={"params": 0}, split_rngs={"params": True}, length=LAYERS
        )
        x, _ = scan(linen.remat(LinenBlock)(name="blocks"), embed(ids), None)
        return embed.attend(x)


def scan_remat_linen() -> Model:
    module = LinenScanned()
    params = fill(jax.eval_shape(module.init, KEY, IDS[:, :-1]))
    kinds = {"*/embedding": "tied", **LINEN_KINDS}
    return Model(next_token_loss(module.apply), (params, IDS), kinds)


class NnxLayer(nnx.Module):
    """One residual layer."""

    def __init__(self, rngs: nnx.Rngs):
        self.linear = nnx.Linear(D, D, rngs=rngs)
        self.norm = nnx.RMSNorm(D, epsilon=0.1, rngs=rngs)

    def __call__(self, x):
        return x + nnx.tanh(self.linear(self.norm(x)))


class NnxScanned(nnx.Module):
    """Layers made by `nnx.vmap` and applied by `nnx.scan`."""

    def __init__(self, rngs: nnx.Rngs):
        @nnx.split_rngs(splits=LAYERS)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def make(rngs):
            return NnxLayer(rngs)

        self.layers = make(rngs)
        self.head = nnx.Linear(D, 4, rngs=rngs)

    def __call__(self, x):
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def forward(x, layer):
            return layer(x)

        return self.head(forward(x, self.layers).mean(1))


def scan_nnx() -> Model:
    abstract = nnx.eval_shape(lambda: NnxScanned(nnx.Rngs(0)))
    graph, params, rest = nnx.split(abstract, nnx.Param, ...)

    def logits(params, x):
        return nnx.merge(graph, params, rest)(x)

    kinds = {"*kernel*": "dense", "*bias*": "leaf", "*scale*": "leaf"}
    return Model(classification_loss(logits), (fill(params), BATCH), kinds)


def scan_equinox() -> Model:
    """Stacked layers made by `filter_vmap`; one sequence at a time."""

    def make(key):
        return eqx.nn.Linear(D, D, key=key)

    keys = jax.eval_shape(lambda key: jax.random.split(key, LAYERS), KEY)
    stacked = eqx.filter_eval_shape(eqx.filter_vmap(make), keys)
    model = (stacked, eqx.filter_eval_shape(eqx.nn.Linear, D, 4, key=KEY))
    params, static = eqx.partition(model, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def logits(params, x):
        static_layer = static[0]

        def layer(x, one):
            return x + jnp.tanh(jax.vmap(eqx.combine(one, static_layer))(x)), None

        x, _ = jax.lax.scan(layer, x, params[0])
        return eqx.combine(params[1], static[1])(x.mean(0))

    kinds = {"*weight": "dense", "*bias": "leaf"}
    args, options = (fill(params), BATCH), {"keep_batch_dim": False}
    return Model(classification_loss(logits), args, kinds, options)


def layer_stack_haiku() -> Model:
    def forward(x):
        def layer(x):
            return x + jnp.tanh(hk.Linear(D)(hk.LayerNorm(-1, True, True, eps=0.1)(x)))

        return hk.Linear(4)(hk.experimental.layer_stack(LAYERS)(layer)(x).mean(1))

    module = hk.without_apply_rng(hk.transform(forward))
    params = fill(jax.eval_shape(module.init, KEY, BATCH[0]))
    kinds = {"*/w": "dense", "*/b": "leaf", "*/scale": "leaf", "*/offset": "leaf"}
    return Model(classification_loss(module.apply), (params, BATCH), kinds)


def albert_block(params, x):
    """Attention and a feed-forward layer whose weights are one another's transposes."""
    x = x + layers.self_attention(params["attention"], x)
    return x + jnp.sin(x @ params["shared"] + params["shift"]) @ params["shared"].T


ALBERT_SHAPES = {
    "attention": {"qkv": layers.dense_shapes(D, 3 * D), "out": layers.dense_shapes(D, D)},
    "shared": (D, 6),
    "shift": (6,),
    "head": (D, 4),
}
ALBERT_KINDS = {
    "*/kernel": "dense",
    "*/bias": "leaf",
    "shared": "dense",
    "shift": "leaf",
    "head": "dense",
}


def albert_loop() -> Model:
    """One block applied twice, written out."""

    def logits(params, x):
        for _ in range(2):
            x = albert_block(params, x)
        return x[:, 0] @ params["head"]

    return Model(classification_loss(logits), (fill(ALBERT_SHAPES), BATCH), ALBERT_KINDS)


def albert_scan() -> Model:
    """One block applied three times by a scan, and once more outside of it."""

    def logits(params, x):
        def layer(x, _):
            return albert_block(params, x), None

        x, _ = jax.lax.scan(layer, x, length=LAYERS)
        return albert_block(params, x)[:, 0] @ params["head"]

    return Model(classification_loss(logits), (fill(ALBERT_SHAPES), BATCH), ALBERT_KINDS)


def albert_groups() -> Model:
    """Two groups of layers, each applied twice: a scan over stacked weights around a shared one."""

    def logits(params, x):
        def group(x, block):
            def layer(x, _):
                return x + jnp.tanh(layers.dense(block, x) @ params["shared"]), None

            return jax.lax.scan(layer, x, length=2)

        x, _ = jax.lax.scan(group, x, params["groups"])
        return x[:, 0] @ params["head"]

    shapes = {"groups": stack(layers.dense_shapes(D, 6), 2), "shared": (6, D), "head": (D, 4)}
    kinds = {"groups/kernel": "dense", "groups/bias": "leaf", "shared": "dense", "head": "dense"}
    return Model(classification_loss(logits), (fill(shapes), BATCH), kinds)


def nested_three_deep() -> Model:
    """A scan in a rematerialised scan in a jitted scan; weights of every level, in every role."""

    def logits(params, x):
        @jax.jit
        def outer(x, one):
            @jax.checkpoint
            def middle(x, two):
                def inner(x, three):
                    h = x @ one["w"] + x @ two["w"] + x @ three["w"] + three["b"]
                    return jnp.tanh(h @ params["shared"]), None

                x, _ = jax.lax.scan(jax.jit(inner), x, two["inner"])
                return x, None

            x, _ = jax.lax.scan(middle, x, one["middle"])
            return x, None

        x, _ = jax.lax.scan(outer, x, params["outer"])
        return x[:, 0] @ params["head"]

    inner = {"w": (2, 3, 2, D, D), "b": (2, 3, 2, D)}
    shapes = {
        "outer": {"w": (2, D, D), "middle": {"w": (2, 3, D, D), "inner": inner}},
        "shared": (D, D),
        "head": (D, 4),
    }
    kinds = {"*/b": "leaf", "*/w": "dense", "shared": "dense", "head": "dense"}
    return Model(classification_loss(logits), (fill(shapes), BATCH), kinds)


MODELS = [
    scan_remat_plain,
    remat_policy_plain,
    scan_remat_linen,
    scan_nnx,
    scan_equinox,
    layer_stack_haiku,
    albert_loop,
    albert_scan,
    albert_groups,
    nested_three_deep,
]
