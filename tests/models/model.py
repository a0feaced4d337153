"""What a model of the suite is, and how its parameters and data are made.

Arrays are NumPy, in float32; the float64 tests use the same values, so that one oracle serves both.
Losses are written for any dtype.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

B, T, D, VOCAB = 3, 5, 8, 11  # examples, tokens, width, size of the vocabulary


@dataclasses.dataclass(frozen=True)
class Model:
    """A loss, its arguments, and what the transform is expected to make of the parameters.

    Attributes:
      loss: the loss, as for `dp_value_and_grad`.
      args: its arguments: by default parameters, batch.
      kinds: from pattern of paths to kind (dense, conv, lookup, tied, leaf), first match counts.
        Every parameter must match a pattern and every pattern a parameter.
      options: options of `dp_value_and_grad` about the arguments.
      dtype: that of the least precise step of the loss, if it is not that of the parameters.
    """

    loss: Callable[..., Any]
    args: tuple[Any, ...]
    kinds: dict[str, str]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    dtype: Any = None


def is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def cast(tree: Any, dtype: Any) -> Any:
    """The floating-point arrays of a tree in `dtype`."""
    return jax.tree.map(lambda x: np.asarray(x, dtype) if is_float(x) else x, tree)


def normal(seed: int, *shape: int) -> np.ndarray:
    """Standard normal values."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def images(seed: int, *shape: int) -> np.ndarray:
    """Normal values, each example at a scale of its own: gradients differ in size."""
    scale = np.logspace(-0.8, 0.2, shape[0], dtype=np.float32)
    return normal(seed, *shape) * scale.reshape(-1, *[1] * (len(shape) - 1))


def tokens(seed: int, *shape: int) -> np.ndarray:
    """Token numbers; some occur several times in an example."""
    return np.random.default_rng(seed).integers(0, VOCAB, shape).astype(np.int32)


def labels(seed: int, classes: int, size: int = B) -> np.ndarray:
    """Class numbers, one per example."""
    return np.random.default_rng(seed).integers(0, classes, size).astype(np.int32)


def fill(shapes: Any, seed: int = 0) -> Any:
    """Random parameters for a tree of shapes (tuples, or what `eval_shape` gives).

    No parameter is zero and none is one, so that no gradient vanishes by accident; matrices are
    scaled to keep the size of what they multiply.
    """
    rng = np.random.default_rng(seed)

    def is_shape(x: Any) -> bool:
        return isinstance(x, tuple) and all(isinstance(n, int) for n in x)

    def make(leaf: Any) -> np.ndarray:
        shape = leaf if is_shape(leaf) else leaf.shape
        values = rng.normal(size=shape)
        size = max(values.size, 1)
        scaled = values * size**-0.25 if len(shape) > 1 else 0.6 + 0.3 * values
        return scaled.astype(np.float32)

    return jax.tree.map(make, shapes, is_leaf=is_shape)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean negative log-likelihood of logits capped at 2.

    So no example is learnt so well that little but rounding is left of its gradient.
    """
    log_p = jax.nn.log_softmax(logits * jax.lax.rsqrt(1 + jnp.square(logits / 2)))
    return -jnp.mean(jnp.take_along_axis(log_p, labels[..., None], axis=-1))


def next_token_loss(logits_of: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """The loss of a language model `logits_of(params, ids)` on sequences of `T + 1` tokens."""

    def loss(params: Any, ids: jax.Array) -> jax.Array:
        return cross_entropy(logits_of(params, ids[:, :-1]), ids[:, 1:])

    return loss


def classification_loss(logits_of: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """The loss of a classifier `logits_of(params, x)` on pairs of input and class."""

    def loss(params: Any, batch: Any) -> jax.Array:
        x, y = batch
        return cross_entropy(logits_of(params, x), y)

    return loss
