"""Transformers: decoders, encoders, both, with images and with experts."""

from __future__ import annotations

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

from models import layers
from models.layers import TRANSFORMER_BLOCK_KINDS
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

KEY = jax.eval_shape(jax.random.key, 0)
IDS = tokens(1, B, T + 1)


def gpt2_plain() -> Model:
    """Tied embedding and head, fused projection, causal attention."""

    def logits(params, ids):
        x = params["embedding"][ids] + params["position"][: ids.shape[1]]
        x = layers.transformer_block(params["block"], x, layers.causal_bias(T, x.dtype))
        return layers.layer_norm(params["norm"], x) @ params["embedding"].T

    shapes = {
        "embedding": (VOCAB, D),
        "position": (T + 2, D),
        "block": layers.transformer_block_shapes(D),
        "norm": layers.layer_norm_shapes(D),
    }
    kinds = {"embedding": "tied", "position": "leaf", **TRANSFORMER_BLOCK_KINDS}
    return Model(next_token_loss(logits), (fill(shapes), IDS), kinds)


class LinenBlock(linen.Module):
    """A pre-norm block of linen's own layers."""

    @linen.compact
    def __call__(self, x, mask=None):
        h = linen.LayerNorm(epsilon=0.1)(x)
        x = x + linen.MultiHeadDotProductAttention(num_heads=2)(h, mask=mask)
        h = linen.LayerNorm(epsilon=0.1)(x)
        return x + linen.Dense(D)(linen.gelu(linen.Dense(2 * D)(h)))


class LinenGPT2(linen.Module):
    """Learned positions, causal attention, `Embed.attend` as the head."""

    @linen.compact
    def __call__(self, ids):
        embed = linen.Embed(VOCAB, D)
        x = embed(ids) + linen.Embed(T, D, name="position")(jnp.arange(ids.shape[1]))
        return embed.attend(LinenBlock()(x, linen.make_causal_mask(ids)))


LINEN_KINDS = {"*/kernel": "dense", "*/bias": "leaf", "*/scale": "leaf"}


def gpt2_linen() -> Model:
    module = LinenGPT2()
    params = fill(jax.eval_shape(module.init, KEY, IDS[:, :-1]))
    kinds = {"*/Embed_0/embedding": "tied", "*/position/embedding": "lookup", **LINEN_KINDS}
    return Model(next_token_loss(module.apply), (params, IDS), kinds)


class NnxGPT2(nnx.Module):
    """The same with nnx: positions sliced, `Embed.attend` as the head."""

    def __init__(self, rngs: nnx.Rngs):
        self.embed = nnx.Embed(VOCAB, D, rngs=rngs)
        self.position = nnx.Param(jnp.zeros((T, D)))
        self.norm1 = nnx.LayerNorm(D, epsilon=0.1, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, D, D, decode=False, rngs=rngs)
        self.norm2 = nnx.LayerNorm(D, epsilon=0.1, rngs=rngs)
        self.up = nnx.Linear(D, 2 * D, rngs=rngs)
        self.down = nnx.Linear(2 * D, D, rngs=rngs)

    def __call__(self, ids):
        x = self.embed(ids) + self.position
        x = x + self.attention(self.norm1(x), mask=nnx.make_causal_mask(ids))
        x = x + self.down(nnx.gelu(self.up(self.norm2(x))))
        return self.embed.attend(x)


def gpt2_nnx() -> Model:
    abstract = nnx.eval_shape(lambda: NnxGPT2(nnx.Rngs(0)))
    graph, params, rest = nnx.split(abstract, nnx.Param, ...)

    def logits(params, ids):
        return nnx.merge(graph, params, rest)(ids)

    kinds = {
        "*embedding*": "tied",
        "*position*": "leaf",
        "*kernel*": "dense",
        "*bias*": "leaf",
        "*scale*": "leaf",
    }
    args = (fill(params), IDS)
    return Model(next_token_loss(logits), args, kinds, dtype=jnp.float32)  # of table and softmax


class EquinoxDecoder(eqx.Module):
    """One sequence at a time; layers are mapped over the tokens with `vmap`."""

    embedding: eqx.nn.Embedding
    norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.embedding = eqx.nn.Embedding(VOCAB, D, key=keys[0])
        self.norm = eqx.nn.LayerNorm(D, eps=0.1)
        self.attention = eqx.nn.MultiheadAttention(2, D, key=keys[1])
        self.head = eqx.nn.Linear(D, VOCAB, key=keys[2])

    def __call__(self, ids):
        x = jax.vmap(self.embedding)(ids)
        h = jax.vmap(self.norm)(x)
        x = x + self.attention(h, h, h, mask=jnp.tri(ids.shape[0], dtype=bool))
        return jax.vmap(self.head)(x)


def decoder_equinox() -> Model:
    shapes = eqx.filter_eval_shape(EquinoxDecoder, KEY)
    params, static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def loss(params, ids):
        return cross_entropy(eqx.combine(params, static)(ids[:-1]), ids[1:])

    kinds = {
        "embedding/weight": "lookup",
        "norm/*": "leaf",
        "attention/*/weight": "dense",
        "head/weight": "dense",
        "head/bias": "leaf",
    }
    return Model(loss, (fill(params), IDS), kinds, {"keep_batch_dim": False})


def decoder_haiku() -> Model:
    """Tokens looked up by array index, positions by a product with one-hot vectors."""

    def forward(ids):
        x = hk.Embed(VOCAB, D, name="embed")(ids)
        x += hk.Embed(T, D, lookup_style="ONE_HOT", name="position")(jnp.arange(T))
        h = hk.LayerNorm(-1, True, True, eps=0.1)(x)
        mask = jnp.tri(T, dtype=bool)[None, None]
        w_init = hk.initializers.VarianceScaling()
        x += hk.MultiHeadAttention(2, D // 2, w_init=w_init, model_size=D)(h, h, h, mask)
        return hk.Linear(VOCAB, name="head")(x)

    module = hk.without_apply_rng(hk.transform(forward))
    params = fill(jax.eval_shape(module.init, KEY, IDS[:, :-1]))
    kinds = {
        "embed/embeddings": "lookup",
        "position/embeddings": "dense",
        "*/w": "dense",
        "*/b": "leaf",
        "layer_norm/*": "leaf",
    }
    return Model(next_token_loss(module.apply), (params, IDS), kinds)


class LinenEncoder(linen.Module):
    """Attention of one head with joined projections, and a feed-forward layer, post-norm."""

    @linen.compact
    def __call__(self, x, bias=0.0):
        qkv = linen.DenseGeneral((3, 1, D), name="qkv")(x)
        q, k, v = (qkv[:, :, i] for i in range(3))
        x = linen.LayerNorm(epsilon=0.1)(x + layers.attention(q, k, v, bias)[:, :, 0])
        return x + linen.Dense(D)(linen.relu(linen.Dense(2 * D)(x)))


class LinenBert(linen.Module):
    """Token, position and type embeddings; a pooler; a masked-word head tied to the tokens."""

    @linen.compact
    def __call__(self, ids, types, is_real):
        embed = linen.Embed(VOCAB, D, name="token")
        x = embed(ids) + linen.Embed(2, D, name="type")(types)
        x = x + linen.Embed(T, D, name="position")(jnp.arange(T))
        bias = jnp.where(is_real, 0, -1e9).astype(x.dtype)
        x = LinenEncoder()(x, bias[:, None, None])
        pooled = linen.tanh(linen.Dense(D, name="pooler")(x[:, 0]))
        is_next = linen.Dense(2, name="next_sentence")(pooled)
        hidden = linen.gelu(linen.Dense(D, name="transform")(x))
        bias = self.param("output_bias", linen.initializers.zeros, (VOCAB,))
        return embed.attend(hidden) + bias, is_next


def bert_linen() -> Model:
    module = LinenBert()

    def loss(params, batch):
        words, is_next = module.apply(params, batch["ids"], batch["types"], batch["is_real"])
        return cross_entropy(words, batch["words"]) + cross_entropy(is_next, batch["is_next"])

    types = (np.arange(T) >= [[2], [3], [4]]).astype(np.int32)
    is_real = np.arange(T) < [[5], [4], [3]]
    batch = {"ids": tokens(1, B, T), "types": types, "is_real": is_real}
    batch |= {"words": tokens(2, B, T), "is_next": labels(3, 2)}
    shapes = jax.eval_shape(module.init, KEY, batch["ids"], types, is_real)
    kinds = {
        "*/token/embedding": "tied",
        "*/type/embedding": "lookup",
        "*/position/embedding": "lookup",
        "*/output_bias": "leaf",
        **LINEN_KINDS,
    }
    return Model(loss, (fill(shapes), batch), kinds)


class LinenViT(linen.Module):
    """Patches by a strided convolution, a class token, learned positions."""

    @linen.compact
    def __call__(self, x):
        x = linen.Conv(D, (3, 3), strides=(3, 3), padding="VALID", name="patches")(x)
        x = x.reshape(x.shape[0], -1, D)
        cls = self.param("cls", linen.initializers.zeros, (1, 1, D))
        x = jnp.concatenate([jnp.broadcast_to(cls, (x.shape[0], 1, D)), x], axis=1)
        x = x + self.param("position", linen.initializers.zeros, (1, x.shape[1], D))
        return linen.Dense(4, name="head")(LinenEncoder()(x)[:, 0])


def vit_linen() -> Model:
    module = LinenViT()
    batch = (images(1, B, 6, 6, 3), labels(2, 4))
    params = fill(jax.eval_shape(module.init, KEY, batch[0]))
    kinds = {
        "*/patches/kernel": "conv",
        "*/cls": "leaf",
        "*/position": "leaf",
        **LINEN_KINDS,
    }
    return Model(classification_loss(module.apply), (params, batch), kinds)


BUCKETS = np.clip(np.arange(T)[None] - np.arange(T)[:, None], -2, 2) + 2  # relative positions


def t5_plain() -> Model:
    """Encoder and decoder, one shared embedding, relative position bias, gated feed-forward."""

    def heads(kernel, x):
        return jnp.einsum("btd,dhk->bthk", x, kernel)

    def attend(params, x, memory, bias):
        q, k, v = heads(params["q"], x), heads(params["k"], memory), heads(params["v"], memory)
        return jnp.einsum("bthk,hkd->btd", layers.attention(q, k, v, bias), params["o"])

    def feed_forward(params, x):
        return (jax.nn.gelu(x @ params["wi_0"]) * (x @ params["wi_1"])) @ params["wo"]

    def relative(table):
        return jnp.transpose(table[BUCKETS], (2, 0, 1))

    def encode(params, ids):
        x = params["shared"][ids]
        h = layers.rms_norm(params["scale1"], x)
        x = x + attend(params["encoder"]["self"], h, h, relative(params["encoder"]["relative"]))
        return x + feed_forward(params["encoder"], layers.rms_norm(params["scale2"], x))

    def loss(params, batch):
        memory = encode(params, batch["source"])
        x, decoder = params["shared"][batch["target"][:, :-1]], params["decoder"]
        bias = relative(decoder["relative"]) + layers.causal_bias(T, x.dtype)
        h = layers.rms_norm(params["scale3"], x)
        x = x + attend(decoder["self"], h, h, bias)
        x = x + attend(decoder["cross"], layers.rms_norm(params["scale4"], x), memory, 0.0)
        x = x + feed_forward(decoder, x)
        return cross_entropy(x @ params["shared"].T * D**-0.5, batch["target"][:, 1:])

    attention = dict.fromkeys("qkv", (D, 2, D // 2)) | {"o": (2, D // 2, D)}
    common = {"self": attention, "relative": (5, 2)}
    common |= {"wi_0": (D, 10), "wi_1": (D, 10), "wo": (10, D)}
    shapes = {"shared": (VOCAB, D), "encoder": common, "decoder": common | {"cross": attention}}
    shapes |= {f"scale{i}": (D,) for i in (1, 2, 3, 4)}
    batch = {"source": tokens(1, B, T), "target": tokens(2, B, T + 1)}
    kinds = {"shared": "tied", "scale*": "leaf", "*/relative": "lookup", "*coder/*": "dense"}
    return Model(loss, (fill(shapes), batch), kinds)


class LinenExperts(linen.Module):
    """Soft mixture of experts: every expert's two layers are one einsum each."""

    @linen.compact
    def __call__(self, ids):
        x = linen.Embed(VOCAB, D)(ids)
        init = linen.initializers.normal()
        gates = linen.softmax(linen.Dense(3, use_bias=False, name="router")(x))
        hidden = jnp.einsum("btd,edf->btef", x, self.param("up", init, (3, D, 10)))
        out = jnp.einsum("btef,efd->bted", linen.relu(hidden), self.param("down", init, (3, 10, D)))
        x = x + jnp.einsum("bted,bte->btd", out, gates)
        return linen.Dense(VOCAB)(x)


def moe_linen() -> Model:
    module = LinenExperts()
    params = fill(jax.eval_shape(module.init, KEY, IDS[:, :-1]))
    kinds = {"*/embedding": "lookup", "*/up": "dense", "*/down": "dense"}
    kinds |= {"*/kernel": "dense", "*/bias": "leaf"}
    return Model(next_token_loss(module.apply), (params, IDS), kinds)


def moe_top1() -> Model:
    """Switch transformer: tokens are dispatched to the expert of the highest score, of capacity 3."""

    def logits(params, ids):
        x = params["embedding"][ids[0]]
        gates = jax.nn.softmax(x @ params["router"])
        chosen = jax.nn.one_hot(jnp.argmax(gates, -1), 3, dtype=x.dtype)  # [tokens, experts]
        place = jnp.cumsum(chosen, 0) * chosen - 1
        slot = jax.nn.one_hot(place.astype(jnp.int32), 3, dtype=x.dtype)  # [tokens, experts, slots]
        inputs = jnp.einsum("tes,td->esd", slot, x)
        hidden = jax.nn.relu(jnp.einsum("esd,edf->esf", inputs, params["up"]))
        outputs = jnp.einsum("esf,efd->esd", hidden, params["down"])
        x = x + jnp.einsum("tes,esd,te->td", slot, outputs, gates)
        return (x @ params["head"])[None]

    shapes = {"embedding": (VOCAB, D), "router": (D, 3), "head": (D, VOCAB)}
    shapes |= {"up": (3, D, 10), "down": (3, 10, D)}
    kinds = {"embedding": "lookup", "*": "dense"}
    return Model(next_token_loss(logits), (fill(shapes), IDS), kinds)


MODELS = [
    gpt2_plain,
    gpt2_linen,
    gpt2_nnx,
    decoder_equinox,
    decoder_haiku,
    bert_linen,
    vit_linen,
    t5_plain,
    moe_linen,
    moe_top1,
]
