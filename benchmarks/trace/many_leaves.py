"""Models of as many small parameters as asked for: what grows in their steps is the tracing alone.

    task = many_leaves.make("mlp", leaves=100)
    jax.jit(jax.value_and_grad(task.loss)).trace(*task.args)

Arguments are shapes: parameters, a batch, and for some models arrays that are not trained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

BATCH, WIDTH, RANK, TOKENS, ROWS, LENGTH = 4, 8, 2, 4, 16, 3


class Task(NamedTuple):
    """A loss with the shapes of its arguments, the parameters first and then the batch."""

    loss: Callable[..., jax.Array]
    args: tuple[Any, ...]


def array(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def dense(layer: dict[str, Any], x: jax.Array) -> jax.Array:
    return x @ layer["kernel"] + layer["bias"]


def dense_shapes(rows: int = WIDTH, columns: int = WIDTH, lead: tuple[int, ...] = ()) -> Any:
    return {"kernel": array(*lead, rows, columns), "bias": array(*lead, columns)}


def mlp(leaves: int) -> Task:
    """Dense layers with biases."""

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for layer in params:
            x = jnp.tanh(dense(layer, x))
        return jnp.mean(x**2)

    return Task(loss, ([dense_shapes() for _ in range(leaves // 2)], array(BATCH, WIDTH)))


def tied(leaves: int) -> Task:
    """An autoencoder whose decoder has the transposed kernels of the encoder."""

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for layer in params:
            x = jnp.tanh(dense(layer, x))
        for layer in reversed(params):
            x = jnp.tanh(x @ layer["kernel"].T)
        return jnp.mean(x**2)

    return Task(loss, ([dense_shapes() for _ in range(leaves // 2)], array(BATCH, WIDTH)))


def transformer(leaves: int) -> Task:
    """Blocks of two norms, attention with one head, and two dense layers: 14 leaves each."""

    def norm(layer: Any, x: jax.Array) -> jax.Array:
        centred = x - jnp.mean(x, -1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)
        return centred * scale * layer["scale"] + layer["bias"]

    def block(p: Any, x: jax.Array) -> jax.Array:
        y = norm(p["norm1"], x)
        q, k, v = (dense(p[name], y) for name in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bsd,btd->bst", q, k))
        x = x + jnp.einsum("bst,btd->bsd", weights, v)
        y = norm(p["norm2"], x)
        return x + dense(p["down"], jnp.tanh(dense(p["up"], y)))

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for p in params:
            x = block(p, x)
        return jnp.mean(x**2)

    layers = {name: dense_shapes() for name in ("q", "k", "v", "up", "down")}
    norms = {name: {"scale": array(WIDTH), "bias": array(WIDTH)} for name in ("norm1", "norm2")}
    blocks = [{**layers, **norms} for _ in range(max(leaves // 14, 1))]
    return Task(loss, (blocks, array(BATCH, TOKENS, WIDTH)))


def lora(leaves: int) -> Task:
    """Two small factors beside each kernel that is not trained."""

    def loss(params: Any, x: jax.Array, kernels: Any) -> jax.Array:
        for layer, kernel in zip(params, kernels, strict=True):
            x = jnp.tanh(x @ kernel + (x @ layer["a"]) @ layer["b"])
        return jnp.mean(x**2)

    layers = leaves // 2
    params = [{"a": array(WIDTH, RANK), "b": array(RANK, WIDTH)} for _ in range(layers)]
    return Task(loss, (params, array(BATCH, WIDTH), [array(WIDTH, WIDTH)] * layers))


def embeddings(leaves: int) -> Task:
    """A table for each column of the batch."""

    def loss(params: Any, ids: jax.Array) -> jax.Array:
        total = sum(jnp.take(table, ids[:, i], axis=0) for i, table in enumerate(params))
        return jnp.mean(jnp.tanh(total) ** 2)

    tables = [array(ROWS, WIDTH) for _ in range(leaves)]
    return Task(loss, (tables, array(BATCH, leaves, dtype=jnp.int32)))


def views(leaves: int) -> Task:
    """By turns a leaf that is split into three kernels, and two that are joined to one."""

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for layer in params:
            q, k, v = jnp.split(layer["qkv"], 3, axis=1)
            x = jnp.tanh(x @ q) + jnp.tanh(x @ k) * jnp.tanh(x @ v)
            x = jnp.tanh(x @ jnp.concatenate([layer["left"], layer["right"]], axis=1))
        return jnp.mean(x**2)

    layer = {"qkv": array(WIDTH, 3 * WIDTH)}
    layer |= {side: array(WIDTH, WIDTH // 2) for side in ("left", "right")}
    return Task(loss, ([layer for _ in range(max(leaves // 3, 1))], array(BATCH, WIDTH)))


def scan(leaves: int) -> Task:
    """One scan whose body has all the layers, each of them stacked."""

    def loss(params: Any, x: jax.Array) -> jax.Array:
        def body(x: jax.Array, layers: Any) -> tuple[jax.Array, None]:
            for layer in layers:
                x = jnp.tanh(dense(layer, x))
            return x, None

        return jnp.mean(jax.lax.scan(body, x, params)[0] ** 2)

    params = [dense_shapes(lead=(LENGTH,)) for _ in range(leaves // 2)]
    return Task(loss, (params, array(BATCH, WIDTH)))


def nested(leaves: int) -> Task:
    """The perceptron with each layer in a `jit` and a `remat` of its own."""

    @jax.jit
    @jax.checkpoint
    def one(layer: Any, x: jax.Array) -> jax.Array:
        return jnp.tanh(dense(layer, x))

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for layer in params:
            x = one(layer, x)
        return jnp.mean(x**2)

    return Task(loss, ([dense_shapes() for _ in range(leaves // 2)], array(BATCH, WIDTH)))


MODELS: dict[str, Callable[[int], Task]] = {
    function.__name__: function
    for function in (mlp, tied, transformer, lora, embeddings, views, scan, nested)
}


def make(name: str, leaves: int) -> Task:
    """The model of that name with about so many parameters."""
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; models are {', '.join(MODELS)}.")
    if leaves < 2:
        raise ValueError(f"a model has at least 2 leaves, got {leaves}.")
    return MODELS[name](leaves)
