"""Networks of dm-haiku, tiny."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import numpy as np

from zoo.entry import Entry, ids, of_outputs, pixels


def entry(make: Any, batch: Any) -> Entry:
    """A loss of what the network returns."""
    network = hk.without_apply_rng(hk.transform_with_state(make))
    params, state = jax.jit(network.init)(jax.random.key(0), batch)
    rng = np.random.default_rng(0)
    some = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32) / 2, params)

    def loss(params: Any, batch: Any) -> Any:
        return of_outputs(network.apply(params, state, batch)[0])

    return Entry(loss, some, batch)


def mlp():
    return entry(lambda x: hk.nets.MLP([8, 4])(x), pixels(6))  # noqa: PLW0108


def lstm():
    def make(x: Any) -> Any:
        core = hk.LSTM(6)
        steps = x.swapaxes(0, 1)
        return hk.dynamic_unroll(core, steps, core.initial_state(x.shape[0]))[0].swapaxes(0, 1)

    return entry(make, pixels(5, 4))


def attention():
    def make(tokens: Any) -> Any:
        x = hk.Embed(13, 8)(tokens)
        position = hk.get_parameter("position", (9, 8), init=hk.initializers.RandomNormal())
        x = x + jax.lax.dynamic_slice_in_dim(position, 0, x.shape[1])
        x = hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling())(x, x, x)
        return hk.LayerNorm(-1, True, True)(x)

    return entry(make, ids(13))


MODELS = (mlp, lstm, attention)
