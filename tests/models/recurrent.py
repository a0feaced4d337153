"""Recurrent networks: one weight is used at every step of a scan over time."""

from __future__ import annotations

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
from flax import linen, nnx

from models import layers
from models.model import VOCAB, B, D, Model, T, classification_loss, fill, images, labels, tokens

KEY = jax.eval_shape(jax.random.key, 0)
SEQUENCES = (images(1, B, T, 6), labels(2, 4))
TEXTS = (tokens(1, B, T), labels(2, 4))


def over_time(x: jax.Array) -> jax.Array:
    return jnp.swapaxes(x, 0, 1)


def lstm_plain() -> Model:
    """Embedding, one product for all gates of input and state together."""

    def logits(params, ids):
        def step(state, x):
            h, c = state
            gates = layers.dense(params["cell"], jnp.concatenate([x, h], axis=-1))
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        x = params["embedding"][ids]
        zero = jnp.zeros_like(x[:, 0])
        (h, _), _ = jax.lax.scan(step, (zero, zero), over_time(x))
        return layers.dense(params["head"], h)

    shapes = {
        "embedding": (VOCAB, D),
        "cell": layers.dense_shapes(2 * D, 4 * D),
        "head": layers.dense_shapes(D, 4),
    }
    kinds = {"embedding": "lookup", "*/kernel": "dense", "*/bias": "leaf"}
    return Model(classification_loss(logits), (fill(shapes), TEXTS), kinds)


def gru_plain() -> Model:
    """A weight per gate; the embedding is looked up inside the scan; read backwards."""

    def logits(params, ids):
        def step(h, token):
            x = params["embedding"][token]
            z = jax.nn.sigmoid(x @ params["xz"] + h @ params["hz"])
            r = jax.nn.sigmoid(x @ params["xr"] + h @ params["hr"])
            n = jnp.tanh(x @ params["xn"] + (r * h) @ params["hn"])
            return (1 - z) * n + z * h, None

        zero = jnp.zeros((ids.shape[0], D), params["xz"].dtype)
        h, _ = jax.lax.scan(step, zero, over_time(ids), reverse=True)
        return h @ params["head"]

    shapes = {f"{source}{gate}": (D, D) for source in "xh" for gate in "zrn"}
    shapes |= {"embedding": (VOCAB, D), "head": (D, 4)}
    kinds = {"embedding": "lookup", "*": "dense"}
    return Model(classification_loss(logits), (fill(shapes), TEXTS), kinds)


class LinenRNN(linen.Module):
    """A cell of linen's, unrolled by `nn.RNN`."""

    cell: linen.RNNCellBase

    @linen.compact
    def __call__(self, x):
        zero = jnp.zeros((x.shape[0], D), x.dtype)
        carry = zero if isinstance(self.cell, linen.GRUCell) else (zero, zero)
        return linen.Dense(4)(linen.RNN(self.cell)(x, initial_carry=carry)[:, -1])


def linen_rnn(cell: linen.RNNCellBase) -> Model:
    module = LinenRNN(cell)
    params = fill(jax.eval_shape(module.init, KEY, SEQUENCES[0]))
    kinds = {"*/kernel": "dense", "*/bias": "leaf"}
    return Model(classification_loss(module.apply), (params, SEQUENCES), kinds)


def optimized_lstm_linen() -> Model:
    """The kernels of the four gates are joined before they are multiplied by."""
    return linen_rnn(linen.OptimizedLSTMCell(D))


def gru_linen() -> Model:
    return linen_rnn(linen.GRUCell(D))


class NnxGRU(nnx.Module):
    """A GRU cell, unrolled by `nnx.RNN`."""

    def __init__(self, rngs: nnx.Rngs):
        self.rnn = nnx.RNN(nnx.GRUCell(6, D, rngs=rngs), rngs=rngs)
        self.head = nnx.Linear(D, 4, rngs=rngs)

    def __call__(self, x):
        carry = jnp.zeros((x.shape[0], D), x.dtype)
        return self.head(self.rnn(x, initial_carry=carry)[:, -1])


def gru_nnx() -> Model:
    graph, params, rest = nnx.split(nnx.eval_shape(lambda: NnxGRU(nnx.Rngs(0))), nnx.Param, ...)

    def logits(params, x):
        return nnx.merge(graph, params, rest)(x)

    kinds = {"*kernel*": "dense", "*bias*": "leaf"}
    return Model(classification_loss(logits), (fill(params), SEQUENCES), kinds)


def lstm_equinox() -> Model:
    def build(key):
        one, two = jax.random.split(key)
        return eqx.nn.LSTMCell(6, D, key=one), eqx.nn.Linear(D, 4, key=two)

    shapes = eqx.filter_eval_shape(build, KEY)
    params, static = eqx.partition(shapes, lambda x: isinstance(x, jax.ShapeDtypeStruct))

    def logits(params, x):
        cell, head = eqx.combine(params, static)
        zero = jnp.zeros(D, x.dtype)
        (h, _), _ = jax.lax.scan(lambda state, x: (cell(x, state), None), (zero, zero), x)
        return head(h)

    kinds = {"*weight*": "dense", "*bias*": "leaf"}
    args, options = (fill(params), SEQUENCES), {"keep_batch_dim": False}
    return Model(classification_loss(logits), args, kinds, options)


def lstm_haiku() -> Model:
    """Two layers, unrolled by a scan and by a Python loop."""

    def forward(x):
        zero = jnp.zeros((x.shape[0], D), x.dtype)
        state = hk.LSTMState(zero, zero)
        x, _ = hk.dynamic_unroll(hk.LSTM(D), over_time(x), state)
        x, _ = hk.static_unroll(hk.VanillaRNN(D), x[-3:], zero)
        return hk.Linear(4)(x[-1])

    module = hk.without_apply_rng(hk.transform(forward))
    params = fill(jax.eval_shape(module.init, KEY, SEQUENCES[0]))
    kinds = {"*/w": "dense", "*/b": "leaf"}
    return Model(classification_loss(module.apply), (params, SEQUENCES), kinds)


MODELS = [
    lstm_plain,
    gru_plain,
    optimized_lstm_linen,
    gru_linen,
    gru_nnx,
    lstm_equinox,
    lstm_haiku,
]
