"""Keras models with data for them, and a plan that takes every example; for `tests/peers`.

Keras is imported inside the functions: where it is not, this module is still read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bk_jax import privacy

N, D, T = 8, 4, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = RNG.integers(0, 2, N)
IDS = RNG.integers(0, 7, (N, T))

# Every example is in every batch, there are rows of padding, and noise is next to nothing.
WHOLE = privacy.PrivacyPlan(
    num_examples=N,
    batch_size=N,
    steps=4,
    delta=1e-3,
    noise_multiplier=1e-7,
    l2_clip_norm=100.0,
    max_batch_size=N + 3,
    pld_interval=0.05,
)

CROSS_ENTROPY = "sparse_categorical_crossentropy"
ONE = {"loss": CROSS_ENTROPY, "metrics": ["accuracy"]}
TWO = {"loss": [CROSS_ENTROPY, "mse"], "metrics": [["accuracy"], ["mae"]]}


def sequential() -> Any:
    import keras
    from keras import layers

    return keras.Sequential(
        [keras.Input((D,)), layers.Dense(3, "tanh"), layers.Dense(2, "softmax")]
    )


def functional() -> Any:
    """Two inputs, two outputs, and a penalty."""
    import keras
    from keras import layers

    inputs = [keras.Input((D,), name="x"), keras.Input((T,), dtype="int32", name="ids")]
    words = layers.Flatten()(layers.Embedding(7, 2)(inputs[1]))
    hidden = layers.Dense(3, "tanh", kernel_regularizer="l2")(
        layers.concatenate([inputs[0], words])
    )
    outputs = [
        layers.Dense(2, "softmax", name="one")(hidden),
        layers.Dense(1, name="two")(hidden),
    ]
    return keras.Model(inputs, outputs)


def transformer() -> Any:
    import keras
    from keras import layers

    ids = keras.Input((T,), dtype="int32")
    h = layers.Embedding(7, 4)(ids)
    h = layers.LayerNormalization()(h + layers.MultiHeadAttention(2, 2)(h, h, use_causal_mask=True))
    h = layers.GlobalAveragePooling1D()(h + layers.Dense(4, "gelu")(h))
    return keras.Model(ids, layers.Dense(2, "softmax")(h))


MODELS: dict[str, tuple[Callable[[], Any], Any, Any, dict[str, Any]]] = {
    "sequential": (sequential, X, Y, ONE),
    "functional": (functional, [X, IDS], [Y, X[:, 0]], TWO),
    "transformer": (transformer, IDS, Y, ONE),
}


def made(build: Callable[[], Any] = sequential, optimizer: Any = None, **compiled: Any) -> Any:
    """The model with the same weights every time, compiled."""
    import keras

    keras.utils.set_random_seed(0)
    model = build()
    model.compile(optimizer or keras.optimizers.SGD(1.0), **compiled or ONE)
    return model


def step(model: Any, x: Any = X, y: Any = Y, **arguments: Any) -> Any:
    """One step of `fit`; returns what its history says."""
    return model.fit(x, y, epochs=1, steps_per_epoch=1, verbose=0, **arguments).history


def assert_same(got: Sequence[Any], expected: Sequence[Any]) -> None:
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
